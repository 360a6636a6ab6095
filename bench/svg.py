"""Small line charts with logarithmic axes, as SVG text: no library."""

import html
import math

COLORS = ["#1f6f8b", "#c8553d", "#5b8c3a", "#7a4b94", "#b8860b"]
WIDTH, HEIGHT = 420, 300
LEFT, RIGHT, TOP, BOTTOM = 62, 14, 34, 44


def page(charts, title):
    """Charts in a grid, three per row."""
    columns = min(3, len(charts))
    rows = -(-len(charts) // columns)
    size = (columns * WIDTH, rows * HEIGHT + 28)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {size[0]} {size[1]}" width="{size[0]}" height="{size[1]}" '
        'font-family="sans-serif" font-size="11">',
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        f'<text x="12" y="19" font-size="14" font-weight="bold">{html.escape(title)}</text>',
    ]
    for i, chart in enumerate(charts):
        parts.append(f'<g transform="translate({i % columns * WIDTH},{28 + i // columns * HEIGHT})">{chart}</g>')
    return "\n".join([*parts, "</svg>\n"])


def chart(title, x_label, y_label, lines, log=True):
    """One chart: `lines` maps a name to its points (x, y); on logarithmic axes all must be above zero."""
    scale = math.log10 if log else float
    points = [(scale(x), scale(y)) for line in lines.values() for x, y in line]
    (x_low, x_high), (y_low, y_high) = (widened(axis) for axis in zip(*points))
    wide, high = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM

    def place(x, y):
        across = LEFT + wide * (scale(x) - x_low) / (x_high - x_low)
        return across, TOP + high * (1 - (scale(y) - y_low) / (y_high - y_low))

    parts = [f'<text x="{LEFT}" y="16" font-weight="bold">{html.escape(title)}</text>']
    for value in ticks(x_low, x_high, log):
        x = place(value, 10**y_low if log else y_low)[0]
        parts.append(f'<line x1="{x:.1f}" y1="{TOP}" x2="{x:.1f}" y2="{TOP + high}" stroke="#e4e4e4"/>')
        parts.append(f'<text x="{x:.1f}" y="{TOP + high + 14}" text-anchor="middle">{short(value)}</text>')
    for value in ticks(y_low, y_high, log):
        y = place(10**x_low if log else x_low, value)[1]
        parts.append(f'<line x1="{LEFT}" y1="{y:.1f}" x2="{LEFT + wide}" y2="{y:.1f}" stroke="#e4e4e4"/>')
        parts.append(f'<text x="{LEFT - 5}" y="{y + 4:.1f}" text-anchor="end">{short(value)}</text>')
    parts.append(f'<text x="{LEFT + wide / 2}" y="{HEIGHT - 10}" text-anchor="middle">{html.escape(x_label)}</text>')
    middle = TOP + high / 2
    turned = f'transform="rotate(-90 13 {middle})"'
    parts.append(f'<text x="13" y="{middle}" text-anchor="middle" {turned}>{html.escape(y_label)}</text>')
    for i, (name, line) in enumerate(lines.items()):
        color = COLORS[i % len(COLORS)]
        places = [place(x, y) for x, y in line]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{color}" stroke-width="1.6"/>')
        if len(places) <= 40:
            parts.extend(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.6" fill="{color}"/>' for x, y in places)
        parts.append(f'<text x="{LEFT + 6}" y="{TOP + 13 + 13 * i}" fill="{color}">{html.escape(name)}</text>')
    return "".join(parts)


def widened(values):
    """The range of an axis, with a margin."""
    low, high = min(values), max(values)
    room = 0.06 * (high - low) or 0.3
    return low - room, high + room


def ticks(low, high, log):
    """Round numbers in the range: powers of two or of ten on a logarithmic axis."""
    if log:
        base = 2 if high - low < 2.5 else 10
        first, last = math.ceil(low / math.log10(base)), math.floor(high / math.log10(base))
        every = max(1, (last - first) // 6)
        return [base**n for n in range(first, last + 1, every)]
    step = 10 ** math.floor(math.log10((high - low) / 3))
    step *= next(n for n in (1, 2, 5, 10) if (high - low) / (n * step) <= 6)
    return [n * step for n in range(math.ceil(low / step), math.floor(high / step) + 1)]


def short(value):
    for limit, letter in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            return f"{value / (1e3 if letter == 'k' else limit):.3g}{letter}"
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.3g}"
