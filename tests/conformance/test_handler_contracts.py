"""Whose a handler's contract is: stores of contracts behave alike."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from dagmaster.ports.handler_contracts import HandlerOffer
from dagmaster.ports.remote_workers import NewWorker
from dagmaster.sdk.handler_definitions import define_handler, to_definition
from tests.conformance.jobs import Played, Scene

if TYPE_CHECKING:
    from dagmaster.ports.handler_contracts import HandlerContracts
    from dagmaster.ports.handler_definitions import HandlerDefinition
    from dagmaster.ports.remote_workers import RemoteWorker, RemoteWorkers
    from dagmaster.records.handlers import HandlerRecord
    from tests.conformance.stores import World

WEEK = 7 * 86_400.0


def contract(name: str = "h", version: str = "1", queue: str | None = None) -> HandlerDefinition:
    return define_handler(name=name, version=version, queue=queue)


def renamed(name: str, *aliases: str) -> HandlerDefinition:
    """Return the contract of a handler that has had other names."""
    return to_definition({**json.loads(contract(name).document), "aliases": [*aliases]})


def offer(actor: str, *definitions: HandlerDefinition, named: tuple[str, ...] = ()) -> HandlerOffer:
    return HandlerOffer(actor, definitions or (contract(),), named)


async def contracts_of(world: World) -> HandlerContracts:
    return (await world.remote_workers()).contracts


async def shown(world: World, name: str = "h") -> HandlerRecord:
    reader = await world.reader()
    return next(record for record in await reader.handlers() if record.name == name)


async def remote_worker(workers: RemoteWorkers, offered: HandlerOffer, *queues: str) -> RemoteWorker:
    admitted = await workers.contracts.offer(offered)
    handlers = {one.name: one.version for one in offered.definitions if one.name in admitted}
    new = NewWorker(registered_by="key id", host="far", queues=queues, handlers=handlers, offer=offered)
    worker = await workers.find(await workers.register(new), "key id")
    assert worker is not None
    return worker


async def test_the_first_caller_owns_a_contract_and_changes_it_alone(world):
    contracts = await contracts_of(world)
    assert await contracts.offer(offer("key:a", contract(queue="q"))) == {"h"}
    assert await contracts.offer(offer("key:b", contract("h", "2", queue="evil"))) == frozenset()
    assert await contracts.offer(offer("key:b", contract(queue="evil"))) == frozenset()
    record = await shown(world)
    assert (record.owner, record.is_trusted, record.queue, record.default_queue) == (
        "key:a",
        False,
        "q",
        None,
    )
    assert [(one.actor, one.version) for one in record.changes] == [("key:b", "1"), ("key:b", "2")]
    assert record.changes[0].differences == ('queue: "q" → "evil"',)
    assert record.other_versions == ()
    assert await contracts.offer(offer("key:a", contract(queue="r"))) == {"h"}
    assert (await shown(world)).queue == "r"


async def test_a_caller_that_offers_the_same_contract_as_the_installation_does_not_get_its_tasks(world):
    worker = await world.worker(handlers={"h": "1"})
    await worker.publish_handlers([contract()])
    contracts = await contracts_of(world)
    assert await contracts.offer(offer("key:a")) == frozenset()
    record = await shown(world)
    assert (record.owner, record.is_trusted) == ("installation", True)
    assert [(one.actor, one.differences) for one in record.changes] == [("key:a", ())]


async def test_the_installation_takes_over_what_a_caller_published(world):
    contracts = await contracts_of(world)
    await contracts.offer(offer("key:a", contract(queue="evil"), contract("h", "7")))
    await world.move(1)
    await (await world.worker(handlers={"h": "1"})).publish_handlers([contract(queue="q")])
    record = await shown(world)
    assert (record.owner, record.queue, record.version, record.other_versions) == (
        "installation",
        "q",
        "1",
        (),
    )
    assert await contracts.offer(offer("key:a", contract(queue="evil"))) == frozenset()
    assert (await shown(world)).queue == "q"


async def test_trust_lets_a_caller_have_a_handler_and_accepts_its_changes(world):
    await (await world.worker(handlers={"h": "1"})).publish_handlers([contract()])
    contracts = await contracts_of(world)
    await contracts.offer(offer("key:a", contract("h", "2", queue="gpu")))
    await contracts.trust("h", "key:a", by="anna")
    assert await contracts.offer(offer("key:a", contract("h", "2", queue="gpu"))) == {"h"}
    record = await shown(world)
    assert (record.owner, record.changes) == ("installation", ())
    assert {record.version, *record.other_versions} == {"1", "2"}
    # A later change waits again, and the tasks go on.
    assert await contracts.offer(offer("key:a", contract("h", "2", queue="more"))) == {"h"}
    assert [one.differences for one in (await shown(world)).changes] != []
    await contracts.distrust("h", "key:a")
    assert await contracts.offer(offer("key:a", contract("h", "2", queue="gpu"))) == frozenset()


async def test_trust_in_a_change_of_another_callers_contract_moves_the_contract(world):
    contracts = await contracts_of(world)
    await contracts.offer(offer("key:squatter"))
    await contracts.offer(offer("key:real", contract(queue="q")))
    await contracts.trust("h", "key:real", by="anna")
    record = await shown(world)
    assert (record.owner, record.is_trusted, record.default_queue) == ("key:real", True, "q")
    assert await contracts.offer(offer("key:squatter")) == frozenset()
    assert await contracts.offer(offer("key:real", contract(queue="q"))) == {"h"}
    # A changed contract is not the one that was trusted.
    await contracts.offer(offer("key:real", contract(queue="r")))
    assert (await shown(world)).default_queue is None


async def test_what_a_trusted_change_replaced_comes_back_when_the_trust_is_taken_away(world):
    await (await world.worker(handlers={"h": "1"})).publish_handlers([contract(queue="ours")])
    contracts = await contracts_of(world)
    await contracts.offer(offer("key:a", contract(queue="gpu"), contract("h", "2")))
    await contracts.trust("h", "key:a", by="anna")
    # Another change of the same caller is not what is to come back.
    await contracts.offer(offer("key:a", contract(queue="more")))
    await contracts.trust("h", "key:a", by="anna")
    record = await shown(world)
    assert "2" in {record.version, *record.other_versions}
    await contracts.distrust("h", "key:a")
    record = await shown(world)
    assert (record.owner, record.is_trusted, record.version, record.queue, record.other_versions) == (
        "installation", True, "1", "ours", (),
    )  # fmt: skip
    assert await contracts.offer(offer("key:a", contract(queue="gpu"))) == frozenset()


async def test_the_contract_of_another_caller_comes_back_with_its_owner_and_its_trust(world):
    contracts = await contracts_of(world)
    await contracts.offer(offer("key:a", contract(queue="q")))
    await contracts.trust("h", "key:a", by="anna")
    await contracts.offer(offer("key:b", contract(queue="evil")))
    await contracts.trust("h", "key:b", by="anna")
    # The new owner changes what it owns, and loses the trust in it; the earlier one is still known.
    await contracts.offer(offer("key:b", contract(queue="worse")))
    assert (await shown(world)).owner == "key:b"
    await contracts.distrust("h", "key:b")
    record = await shown(world)
    assert (record.owner, record.is_trusted, record.default_queue) == ("key:a", True, "q")
    assert await contracts.offer(offer("key:a", contract(queue="q"))) == {"h"}
    # Its own contract replaced nothing.
    await contracts.distrust("h", "key:a")
    assert await (await world.reader()).handlers() == []


async def test_a_contract_of_a_caller_that_is_distrusted_meanwhile_does_not_come_back(world):
    contracts = await contracts_of(world)
    await contracts.offer(offer("key:a", contract(queue="q")))
    await contracts.offer(offer("key:b", contract(queue="r")))
    await contracts.trust("h", "key:b", by="anna")
    await contracts.distrust("h", "key:a")
    assert (await shown(world)).owner == "key:b"
    await contracts.distrust("h", "key:b")
    assert await (await world.reader()).handlers() == []


async def test_nothing_comes_back_after_the_installation_has_published_again(world):
    worker = await world.worker(handlers={"h": "1"})
    await worker.publish_handlers([contract(queue="ours")])
    contracts = await contracts_of(world)
    await contracts.offer(offer("key:a", contract(queue="gpu")))
    await contracts.trust("h", "key:a", by="anna")
    await worker.publish_handlers([contract(queue="newer")])
    await contracts.distrust("h", "key:a")
    record = await shown(world)
    assert (record.owner, record.queue) == ("installation", "newer")


async def test_a_name_that_ships_belongs_to_the_installation_before_it_is_published(world):
    contracts = await contracts_of(world)
    reserved = offer("key:a", contract(queue="evil"), contract("own"))._replace(reserved=frozenset({"h"}))
    assert await contracts.offer(reserved) == {"own"}
    assert [record.name for record in await (await world.reader()).handlers()] == ["own"]
    # It waits, like any change, once there is a contract.
    await (await world.worker(handlers={"h": "1"})).publish_handlers([contract()])
    assert [one.actor for one in (await shown(world)).changes] == ["key:a"]
    assert (await shown(world)).queue is None


async def test_a_key_that_names_a_shipped_handler_may_be_the_first_to_publish_it(world):
    contracts = await contracts_of(world)
    reserved = offer("key:a", named=("h",))._replace(reserved=frozenset({"h"}))
    assert await contracts.offer(reserved) == {"h"}
    assert (await shown(world)).owner == "key:a"


async def test_trust_in_the_owner_makes_its_default_queue_count(world):
    contracts = await contracts_of(world)
    await contracts.offer(offer("key:a", contract(queue="q")))
    await contracts.trust("h", "key:a", by="anna")
    assert (await shown(world)).default_queue == "q"
    await contracts.distrust("h", "key:a")
    assert await (await world.reader()).handlers() == []


async def test_an_alias_of_the_installation_is_a_name_that_no_caller_owns(world):
    contracts = await contracts_of(world)
    # One was first, and one comes later.
    assert await contracts.offer(offer("key:first", contract("old"))) == {"old"}
    await (await world.worker("other", handlers={"h": "1"})).publish_handlers([renamed("h", "old", "older")])
    for caller in ("key:first", "key:late"):
        assert await contracts.offer(offer(caller, contract("old"), contract("older"))) == frozenset()
    proposals = [(one.actor, one.version) for one in (await shown(world)).changes]
    assert sorted(proposals) == [("key:first", "1")] * 2 + [("key:late", "1")] * 2
    names = [record.name for record in await (await world.reader()).handlers()]
    assert names == ["h", "old"], "the first caller has a contract that is not used"
    # Trust is in a handler under all its names, and an alias gets no contract.
    await contracts.trust("h", "key:late", by="anna")
    assert await contracts.offer(offer("key:late", contract("old"))) == {"old"}
    assert {one.actor for one in (await shown(world)).changes} == {"key:first"}
    await contracts.distrust("h", "key:late")
    assert await contracts.offer(offer("key:late", contract("old"))) == frozenset()
    # A key that names it has it.
    assert await contracts.offer(offer("key:named", contract("old"), named=("old",))) == {"old"}


async def test_a_worker_gets_no_tasks_of_an_alias_that_the_installation_published_later(world):
    scene = await Scene.begin(world)
    await scene.dispatch("a")
    worker = await remote_worker(await world.remote_workers(), offer("key:a"))
    await (await world.worker("other", handlers={"new": "1"})).publish_handlers([renamed("new", "h")])
    worker = await found(await world.remote_workers(), worker)
    await worker.refresh_handlers()
    assert await worker.claim_handled(1) == []


async def test_contracts_that_are_named_like_an_alias_are_collected_even_if_a_worker_offers_them(world):
    workers = await world.remote_workers()
    live = await remote_worker(workers, offer("key:a", contract("old"), contract("own")))
    await (await world.worker(handlers={"h": "1"})).publish_handlers([renamed("h", "old")])
    await world.move(WEEK + 1)
    await workers.find(live.id, "key id")
    scene = await Scene.begin(world)
    while await scene.orchestrator.collect_handlers(WEEK):
        pass
    names = [record.name for record in await (await world.reader()).handlers()]
    assert names == ["h", "own"]


async def test_no_caller_owns_a_function_of_the_installations_code_by_being_first(world):
    contracts = await contracts_of(world)
    assert await contracts.offer(offer("key:a", contract("etl.load"))) == frozenset()
    assert not (await shown(world, "etl.load")).is_usable
    await contracts.trust("etl.load", "key:a", by="anna")
    assert await contracts.offer(offer("key:a", contract("etl.load"))) == {"etl.load"}


async def test_a_key_that_names_a_handler_may_have_it_and_not_change_it(world):
    await (await world.worker(handlers={"h": "1"})).publish_handlers([contract()])
    contracts = await contracts_of(world)
    changed = contract(queue="evil")
    assert await contracts.offer(offer("key:a", changed, named=("h",))) == {"h"}
    record = await shown(world)
    assert (record.queue, len(record.changes)) == (None, 1)


async def test_a_worker_gets_tasks_of_a_handler_once_its_caller_is_trusted_and_until_it_is_not(world):
    scene = await Scene.begin(world)
    await scene.dispatch("a")
    await (await world.worker("other", handlers={"h": "1"})).publish_handlers([contract()])
    workers = await world.remote_workers()
    worker = await remote_worker(workers, offer("key:a"))
    assert await worker.claim_handled(1) == []
    await workers.contracts.trust("h", "key:a", by="anna")
    # Another server: this one reads after some seconds what the worker may have.
    worker = await found(await world.remote_workers(), worker)
    await worker.refresh_handlers()
    (task,) = await worker.claim_handled(1)
    assert task.handler == "h"


async def test_the_facts_of_a_job_name_a_caller_whose_workers_are_not_trusted(world):
    played = await Played.begin(world, "{name: n, nodes: {a: {handler: h, queue: q}}}")
    publisher = await world.worker("other", handlers={"h": "1"})
    await publisher.publish_handlers([contract()])
    await remote_worker(await world.remote_workers(), offer("key:a"))

    async def caller() -> str | None:
        facts = await (await world.reader()).diagnosis(played.job_id)
        assert facts is not None
        found: str | None = facts.tasks["a"].untrusted_caller
        return found

    assert await caller() is None
    await publisher.deregister()
    assert await caller() == "key:a"


async def test_contracts_of_workers_that_are_gone_are_collected(world):
    workers = await world.remote_workers()
    live = await remote_worker(workers, offer("key:a", contract("live")))
    await workers.contracts.offer(offer("key:a", contract("gone"), contract("trusted")))
    await workers.contracts.trust("trusted", "key:a", by="anna")
    await workers.contracts.offer(offer("key:b", contract("live"), contract("trusted", queue="evil")))
    scene = await Scene.begin(world)
    await scene.orchestrator.collect_handlers(WEEK)
    assert len(await (await world.reader()).handlers()) == 3
    await world.move(WEEK + 1)
    await workers.find(live.id, "key id")
    while await scene.orchestrator.collect_handlers(WEEK):
        pass
    names = [record.name for record in await (await world.reader()).handlers()]
    assert names == ["live", "trusted"]
    assert (await shown(world, "trusted")).changes == ()
    assert (await workers.contracts.usage("key id", "key:a")).handlers == {"live", "trusted"}


async def test_the_usage_of_a_key_is_its_live_workers_queues_and_handlers(world):
    workers = await world.remote_workers()
    one = await remote_worker(workers, offer("key:a", contract("x")), "q", "r")
    await remote_worker(workers, offer("key:a", contract("y")), "r")
    usage = await workers.contracts.usage("key id", "key:a")
    assert usage == (2, {"q", "r"}, {"x", "y"})
    await one.deregister()
    assert (await workers.contracts.usage("key id", "key:a")).workers == 1
    assert await workers.contracts.usage("another", "key:b") == (0, frozenset(), frozenset())


async def found(workers: RemoteWorkers, worker: RemoteWorker) -> RemoteWorker:
    again = await workers.find(worker.id, "key id")
    assert again is not None
    return again


async def test_a_task_waits_while_only_a_worker_that_is_not_trusted_offers_its_handler(world):
    scene = await Scene.begin(world)
    worker = await world.worker()
    await scene.dispatch("a", handler="h")
    (task,) = await worker.claim(1)
    workers = await world.remote_workers()
    assert await workers.contracts.offer(offer("key:first")) == {"h"}
    await remote_worker(workers, offer("key:other"), "another")
    assert not await worker.other_worker_has_handler(task.task_id)
    waiting = await remote_worker(workers, offer("key:other"), "q")
    assert await worker.other_worker_has_handler(task.task_id)
    # It is offered by its name, whatever this worker says of packages.
    assert await worker.other_worker_has_handler(task.task_id, by_package=False)
    await waiting.deregister()
    assert not await worker.other_worker_has_handler(task.task_id)
