# SPDX-License-Identifier: Apache-2.0
"""Volume services in Cinder's database."""

from cinder.common import constants
from cinder import objects

from cinder_localclone.core.interfaces import records
from cinder_localclone.db import base


class Services(records.Services):

    def alive_by_host(self) -> dict[str, bool]:
        services = objects.ServiceList.get_all(
            base.admin(), {'binary': constants.VOLUME_BINARY})
        return {service.host: bool(service.is_up) for service in services}

    def zone_of(self, host: str) -> str | None:
        with base.reader() as session:
            service = base.service_row(session, host)
            return service and service.availability_zone
