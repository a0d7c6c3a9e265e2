"""What a worker finds when it trains twice: without Perseus, and attached."""

import perseus
import tiny_gpt
from torch_worker import OFF


def compare(train, without, with_perseus, schedule_of, job_directory):
    """Trains `without`, attaches Perseus to schedule_of(with_perseus), and trains that.

    `train` returns all that was computed, and the order of instructions that the observer saw.
    """
    expected, order = train(without)
    schedule = schedule_of(with_perseus)
    handle = perseus.attach(schedule, job_directory=job_directory, **OFF)
    found, again = train(with_perseus)
    counters = handle.session.counters
    is_attached = handle.is_attached
    handle.detach()
    return {
        "is_same": found == expected and order == again,
        "is_attached": is_attached,
        "steps": counters.steps,
        "order": order,
        "stages": sorted(stage.stage_index for stage in tiny_gpt.stages_of(schedule)),
    }
