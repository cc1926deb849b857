"""What a well endpoint answers in the simulated loads: whole, or as a stream."""

from __future__ import annotations

from tests.simulation.world import DONE, FINISH, ROLE, Script, spoken, whole

GOOD = {
    False: Script(0.2, 200, ((0.0, whole("1")),)),
    True: Script(0.1, 200, ((0.0, ROLE), *((0.05, spoken("1", at)) for at in range(5)), (0.0, FINISH), (0.0, DONE))),
}
