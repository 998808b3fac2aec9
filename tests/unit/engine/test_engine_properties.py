"""Whatever happens, in whatever order: the engine does what the documents say, and a reload changes nothing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.engine.proof import Proof, batches_of
from tests.unit.engine.worlds import Drawn, Workflows, pick


@given(data=st.data())
def test_every_history_is_one_that_the_documents_allow(data):
    chance = Drawn(data)
    graph = Workflows(chance).graph()
    batch = pick(chance, [2, 3, 5000])
    with batches_of(batch):
        proof = Proof(graph, batch=batch)
        proof.live(chance, steps=chance.number(1, 40))
        proof.live_to_the_end(chance)
