"""Functions as tasks. With `corral up` running: python examples/functions/main.py"""

from __future__ import annotations

import corral


@corral.task(retries=2, timeout=60)
def primes(upto: int) -> int:
    """How many primes there are below a number."""
    sieve = bytearray([1]) * max(upto, 2)
    sieve[:2] = b"\0\0"
    for number in range(2, int(upto**0.5) + 1):
        corral.progress(number, upto**0.5, f"at {number}")
        if sieve[number]:
            sieve[number * number :: number] = bytes(
                len(range(number * number, len(sieve), number))
            )
    return sum(sieve)


@corral.task
def invert(number: float) -> float:
    return 1 / number


def main() -> None:
    print("here:", primes(100))
    print("there:", primes.submit(100).result(timeout=60))
    print("in order:", list(primes.map([10, 100, 1000])))
    print("as they come:", sorted(primes.map(range(10), ordered=False)))
    try:
        invert.submit(0).result(timeout=60)
    except corral.errors.TaskFailed as failed:
        print("failed as it should:", failed.task.error.message)


if __name__ == "__main__":
    main()
