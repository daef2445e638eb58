# SPDX-License-Identifier: Apache-2.0
"""Which class of functional tests a worker takes next. Pure."""

import dataclasses

#: Seconds of a test of a class that nobody has timed.
UNKNOWN = 60
#: Seconds that a lab takes to come up. A worker brings one up beside another
#: worker's of the same kind if these have at least twice as much to do.
LAB = 40


@dataclasses.dataclass(frozen=True)
class Job:
    """A class of tests.

    :param name: of the class, with its module
    :param lab: the kind of lab that it needs
    :param seconds: that it takes, about
    :param tests: the ids of its tests that are wanted
    """

    name: str
    lab: str
    seconds: float
    tests: tuple[str, ...]


class Queue:
    """Jobs that no worker has taken yet.

    A worker stays with its lab as long as there are tests for it. Then it
    brings up a lab that no other worker has; then one that others have, too,
    if that pays.
    """

    def __init__(self, jobs) -> None:
        self.left = sorted(jobs, key=lambda job: -job.seconds)

    def take(self, lab: str | None, others) -> Job | None:
        """The next job of a worker; None: there is none for it.

        :param lab: the kind that the worker has up; None: none
        :param others: the kinds that the other workers have up
        """
        waiting: dict[str, float] = {}
        for job in self.left:
            waiting[job.lab] = waiting.get(job.lab, 0) + job.seconds
        if lab not in waiting:
            free = {each: seconds for each, seconds in waiting.items()
                    if each not in others}
            shared = {each: seconds for each, seconds in waiting.items()
                      if seconds >= 2 * LAB}
            pool = free or shared
            if not pool:
                return None
            lab = max(pool, key=lambda each: pool[each])
        job = next(each for each in self.left if each.lab == lab)
        self.left.remove(job)
        return job

    def put_back(self, job: Job) -> None:
        """The job is to be taken by another worker."""
        self.left.insert(0, job)
