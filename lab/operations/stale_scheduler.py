# SPDX-License-Identifier: Apache-2.0
"""Cinder's scheduler, which may be told of a volume's former home."""

from cinder.scheduler import filter_scheduler

from lab.operations import stale


class Scheduler(filter_scheduler.FilterScheduler):
    """Chooses for a new volume where its image was before."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        stale.install()

    def schedule_create_volume(self, context, request_spec,
                               filter_properties):
        """As Cinder's, with what the API has read too early."""
        asked = request_spec.get('resource_backend')
        if asked:
            request_spec['resource_backend'] = stale.former(
                asked, stale.homes())
        return super().schedule_create_volume(context, request_spec,
                                              filter_properties)
