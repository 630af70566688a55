"""How the rows of a grouped product fall on its groups: seeded draws whose sizes sum to the rows exactly. A leaf."""

import random


def whole(weights: list[float], total: int) -> list[int]:
    """Integers in proportion to the weights; what rounding leaves goes to the largest remainders."""
    scale = total / sum(weights)
    sizes = [int(weight * scale) for weight in weights]
    short = sorted(range(len(sizes)), key=lambda g: sizes[g] - weights[g] * scale)
    for g in short[: total - sum(sizes)]:
        sizes[g] += 1
    return sizes


def equal(draw, groups: int, total: int) -> list[int]:
    return whole([1.0] * groups, total)


def between(draw, groups: int, total: int, low: float, high: float) -> list[int]:
    return whole([draw.uniform(low, high) for _ in range(groups)], total)


def squares(draw, groups: int, total: int, least: float) -> list[int]:
    """Uneven: each group weighs a number from 0 to 1, squared, and `least`."""
    return whole([draw.random() ** 2 + least for _ in range(groups)], total)


def multiples(draw, groups: int, total: int, of: int) -> list[int]:
    return [of * size for size in whole([draw.random() for _ in range(groups)], total // of)]


def half(draw, groups: int, total: int) -> list[int]:
    """One group, anywhere, has half of all rows; the others are equal."""
    if groups == 1:
        return [total]
    sizes = equal(draw, groups - 1, total - total // 2)
    sizes.insert(draw.randrange(groups), total // 2)
    return sizes


def few(draw, groups: int, total: int, experts: int) -> list[int]:
    """So many groups share the rows equally, the others are empty."""
    sizes = [0] * groups
    for g, size in zip(sorted(draw.sample(range(groups), experts)), equal(draw, experts, total), strict=True):
        sizes[g] = size
    return sizes


def top_k(draw, groups: int, total: int, top_k: int, tokens: int) -> list[int]:
    """Each token goes to `top_k` different groups."""
    sizes = [0] * groups
    for _ in range(tokens):
        for g in draw.sample(range(groups), top_k):
            sizes[g] += 1
    return sizes


def exact(draw, groups: int, total: int, sizes: list[int]) -> list[int]:
    return list(sizes)


KINDS = {made.__name__: made for made in (equal, between, squares, multiples, half, few, top_k, exact)}


def draw_sizes(groups: int, total: int, distribution: dict, seed: str) -> list[int]:
    """The sizes of a distribution, {"kind": name, its arguments}; one seed always gives the same."""
    arguments = {name: value for name, value in distribution.items() if name != "kind"}
    sizes = KINDS[distribution["kind"]](random.Random(seed), groups, total, **arguments)
    if len(sizes) != groups or sum(sizes) != total:
        raise ValueError(
            f"{distribution} gave {len(sizes)} groups of {sum(sizes)} rows: {groups} of {total} are needed"
        )
    return sizes


def sizes_of(case: dict) -> list[int]:
    """Those of a case of grouped.json: of its m, or of its k where its groups are along K."""
    total = case["k" if case["ragged"] == "K" else "m"]
    return draw_sizes(case["groups"], total, case["distribution"], case.get("seed", case["id"]))
