"""Measures the search among 1,000 tools: prompt tokens with and without it, how often the right tool is among the best
five, and the time of 100,000 tools.

    python benchmarks/tool_search.py             the half of the queries that the search was developed with
    python benchmarks/tool_search.py --hidden    the other half
    python benchmarks/tool_search.py --misses    also each query whose tool is not among the best five
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import replace
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from searches.catalogue import name_of, specs
from searches.queries import QUERIES, is_hidden

from toolspeak.dialects import get_dialect
from toolspeak.tools.tool_catalogue import BEST, ToolCatalogue
from toolspeak.tools.tool_index import ToolIndex

GOAL = 0.8
"""The least share of queries whose tool must be among the best five."""


def characters(names: list[str]) -> None:
    """Prints the size of the prompt for each dialect, with all definitions and with the search."""
    tools = specs()
    catalogue = ToolCatalogue(tools)
    matches = [spec for spec in tools if spec.name in catalogue.search("convert currency")[1]]
    print(f"\nprompt in tokens (four characters each), {len(tools)} tools")
    print(f"{'dialect':<14}{'all':>9}{'search':>9}{'and 5 found':>13}{'saved':>8}")
    for name in names:
        dialect = get_dialect(name)
        sizes = [
            len(dialect.prompt("", each, "trained").text) // 4
            for each in (tools, [catalogue.tool().spec], [catalogue.tool().spec, *matches])
        ]
        print(f"{name:<14}{sizes[0]:>9,}{sizes[1]:>9,}{sizes[2]:>13,}{1 - sizes[2] / sizes[0]:>8.1%}")


def hits(*, hidden: bool, shows_misses: bool) -> float:
    """Prints the hit rates. Returns the share of queries whose tool is among the best five."""
    tools = specs()
    names = {spec.name for spec in tools}
    index = ToolIndex(tools)
    queries = [(query, name_of(target)) for query, target in QUERIES if is_hidden(query) == hidden]
    places: list[int | None] = []
    for query, target in queries:
        assert target in names, target
        best = [spec.name for spec in index.best(query, 50)]
        places.append(best.index(target) if target in best else None)
        if shows_misses and (places[-1] is None or places[-1] >= BEST):
            print(f"  missed: {query!r}: {target} is at {places[-1]}; first: {', '.join(best[:3])}")
    print(f"\n{len(queries)} queries of the {'hidden' if hidden else 'visible'} half, {len(tools)} tools")
    for most in (1, BEST, 10):
        share = sum(place is not None and place < most for place in places) / len(queries)
        print(f"in the best {most:>2}: {share:.0%}")
    return sum(place is not None and place < BEST for place in places) / len(queries)


def times() -> None:
    """Prints how long the index and a search take with 1,000 and 100,000 tools."""
    print(f"\n{'tools':>9}{'index':>10}{'search':>10}{'names':>10}{'characters of the list':>24}")
    for copies in (1, 100):
        tools = [replace(spec, name=f"{spec.name}_{copy}") for copy in range(copies) for spec in specs()]
        began = time.process_time()
        index = ToolIndex(tools)
        index_time = time.process_time()
        for query, _ in QUERIES[:10]:
            index.best(query, BEST)
        search_time = time.process_time()
        description = ToolCatalogue(tools).description
        end = time.process_time()
        each = (search_time - index_time) / 10
        row = f"{index_time - began:>9.2f}s{each * 1000:>8.1f}ms{end - search_time:>9.2f}s{len(description):>24,}"
        print(f"{len(tools):>9,}{row}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hidden", action="store_true")
    parser.add_argument("--misses", action="store_true")
    options = parser.parse_args()
    share = hits(hidden=options.hidden, shows_misses=options.misses)
    characters(["hermes", "qwen3-coder", "cogency-json", "mistral-v11"])
    times()
    return 0 if share >= GOAL else 1


if __name__ == "__main__":
    sys.exit(main())
