"""A contest: our program and its peers do the same task in turn, several times; and the table of the results."""

import os
import re
import statistics
import sys
from dataclasses import dataclass, field

from measuring import ROOT, measure

BEGIN, END = "<!-- bench:begin -->", "<!-- bench:end -->"


@dataclass
class Way:
    """A contestant: a command that prints a JSON object."""

    name: str
    command: list
    env: dict = field(default_factory=dict)


@dataclass
class Row:
    """A row of the table: a key of the objects that all ways print. `bar` is the ratio to the best of `peers` that ours must reach or,
    for a value that no peer has, the value itself."""

    what: str
    peers: list
    bar: float = None
    key: str = "tokens_per_s"
    unit: str = "tokens/s"
    less_is_better: bool = False
    alone: bool = False


@dataclass
class Contest:
    """Ways that take turns, and the rows to compute from their results."""

    ours: Way
    peers: list
    rows: list


def hold(contest, record, rounds, timeout_s):
    """Runs the contest, and returns the rows of the table."""
    results = {way.name: [] for way in [contest.ours, *contest.peers]}
    what = contest.rows[0].what
    for number in range(rounds):
        for way in [contest.ours, *contest.peers]:
            if len(results[way.name]) < number:
                continue  # it failed before
            print(f"  {what}: {way.name}, turn {number + 1} of {rounds}", file=sys.stderr, flush=True)
            result = measure(record, way.command, timeout_s, way.env, contest=what, way=way.name, turn=number)
            if result is None:
                print("    failed; the record says why", file=sys.stderr)
            else:
                results[way.name].append(result)
    if len(results[contest.ours.name]) < rounds:
        record.failed.append(what)
    rows = [judge(row, contest.ours.name, results) for row in contest.rows]
    for row in rows:
        record.add({"kind": "row", **row})
    return rows


def looked_up(result, key):
    """The value under a dotted key in the printed object; None if it is missing."""
    for part in key.split("."):
        result = result.get(part) if isinstance(result, dict) else None
    return result if isinstance(result, (int, float)) else None


def judge(row, ours, results):
    """The medians, and the ratio to the peer with the best median: the median of the ratios of the turns."""
    read = {name: [looked_up(result, row.key) for result in results.get(name, [])] for name in [ours, *row.peers]}
    values = {name: those for name, those in read.items() if those and None not in those}
    own = values.pop(ours, [])
    medians = {name: statistics.median(those) for name, those in values.items()}
    best = (min if row.less_is_better else max)(medians, key=medians.get, default=None)
    judged = {"what": row.what, "unit": row.unit, "bar": row.bar, "less_is_better": row.less_is_better, "peer_name": best}
    judged |= {"ours": statistics.median(own) if own else None, "peer": medians.get(best), "ratio": None, "met": None}
    judged["values"] = {ours: own, **values}
    if own and best:
        turns = list(zip(own, values[best]))
        judged["ratios"] = [theirs / mine if row.less_is_better else mine / theirs for mine, theirs in turns]
        judged["ratio"] = statistics.median(judged["ratios"])
        judged["met"] = None if row.bar is None else judged["ratio"] >= row.bar
    elif own and row.bar is not None and row.alone:
        judged["met"] = judged["ours"] <= row.bar if row.less_is_better else judged["ours"] >= row.bar
    return judged


def table(rows, facts):
    """The rows as a Markdown table."""
    on = facts["gpu"].split(",")[0] if facts["gpu"] else f"{facts['processor']}, {facts['cores']} cores"
    lines = [
        f"Measured {facts['date'][:10]} at {facts['commit']} on {on}; {facts['peers'] or 'no peers'}. Medians of turns taken one "
        "after the other; `ratio` is the median of each turn's, above 1 where Ember is ahead of the best of its peers.",
        "",
        "| what | Ember | best peer | ratio | bar |",
        "|---|---|---|---|---|",
    ]
    for row in rows:
        peer = f"{number(row['peer'])} ({row['peer_name']})" if row["peer"] is not None else "-"
        ratio = f"**{row['ratio']:.2f}**" if row["ratio"] else "-"
        ours = f"{number(row['ours'])} {row['unit']}" if row["ours"] is not None else "failed"
        bar = "-" if row["bar"] is None else f"{'at most ' if row['less_is_better'] and not row['peer'] else ''}{row['bar']:g}"
        bar += {True: ", met", False: ", not met", None: ""}[row["met"]]
        lines.append(f"| {row['what']} | {ours} | {peer} | {ratio} | {bar} |")
    return "\n".join(lines) + "\n"


def number(value):
    """The number with three significant digits and thousands separators."""
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def put_into(name, text):
    """Puts a table between the two markers in a document. Returns a message about the result."""
    path = os.path.join(ROOT, name)
    with open(path) as file:
        document = file.read()
    if BEGIN not in document or END not in document:
        return f"{name} has no marks for the table"
    between = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
    with open(path, "w") as file:
        file.write(between.sub(lambda _: f"{BEGIN}\n{text}{END}", document, count=1))
    return f"{name} has the table"
