"""A small drawing kit, so that all pictures of the book look alike.

A Drawing is an SVG card, 700 wide, light or dark as its reader's system is. Kinds are CSS classes, and the same thing has
the same kind everywhere:

  r0 r1 r2 r3     a rank or a device, and what is its own: four colours that differ in grey print, too
  p g a o         parameters, gradients (hatched), activations (dotted), optimizer state (ruled)
  plain soft      a box, a quiet box
  ghost           what isn't there: dashed
"""

import math
from xml.sax.saxutils import escape

WIDTH = 700
SMALLEST = 11  # of all text, in pixels
PICTURES = {}  # name -> function that returns a Drawing

STYLE = """text{fill:#1f2933}.k{fill:#1f2933}.w{fill:#fff}.faint{fill:#5b6775}.no{fill:#c62828}.yes{fill:#1b7a3d}
.card{fill:#fff;stroke:#d8dee4}.plain{fill:#fff;stroke:#7b8794}.soft{fill:#f1f4f7;stroke:#c3ccd6}
.ghost{fill:none;stroke:#9aa5b1;stroke-dasharray:4 3}.rule{fill:none;stroke:#c3ccd6}
.r0{fill:#1f5fa8;stroke:#184b85}.r1{fill:#eda03a;stroke:#b9741a}.r2{fill:#8fdcc6;stroke:#4a9d88}.r3{fill:#cc62a1;stroke:#8f3a6d}
.p{fill:#c3ccd6;stroke:#7b8794}.g{fill:url(#g);stroke:#b5564b}.a{fill:url(#a);stroke:#b08d1e}.o{fill:url(#o);stroke:#7f6bb0}
.f{stroke-width:2.5}.f.r0,.f.r1,.f.r2,.f.r3{fill:#f1f4f7}
.go,.back,.slow,.bad,.good{fill:none;stroke-width:1.7;stroke-linecap:round;stroke-linejoin:round}
.go{stroke:#46525f}.back{stroke:#b5564b}.slow{stroke:#46525f;stroke-dasharray:5 4}.bad{stroke:#c62828;stroke-width:2.5}.good{stroke:#1b7a3d;stroke-width:2.5}
@media(prefers-color-scheme:dark){text{fill:#e4e8ec}.k{fill:#1f2933}.w{fill:#fff}.faint{fill:#a5b0bc}.no{fill:#ff8a80}.yes{fill:#7ddc9a}
.card{fill:#20242c;stroke:#3a414c}.plain{fill:#2b313b;stroke:#8b97a5}.soft,.f.r0,.f.r1,.f.r2,.f.r3{fill:#2b313b}.soft,.rule{stroke:#4d5763}
.ghost{stroke:#7b8794}.r0{fill:#3f80cf;stroke:#5b97e0}.go,.slow{stroke:#b8c2cc}.back{stroke:#f08d80}.bad{stroke:#ff8a80}.good{stroke:#7ddc9a}}"""

PATTERNS = (
    '<pattern id="g" width="6" height="6" patternUnits="userSpaceOnUse"><rect width="6" height="6" fill="#f9cfc8"/>'
    '<path d="M-1 1l2-2M0 6l6-6M5 7l2-2" stroke="#e89a8f"/></pattern>'
    '<pattern id="a" width="6" height="6" patternUnits="userSpaceOnUse"><rect width="6" height="6" fill="#ffe9a6"/>'
    '<circle cx="3" cy="3" r="1" fill="#d9b23c"/></pattern>'
    '<pattern id="o" width="5" height="5" patternUnits="userSpaceOnUse"><rect width="5" height="5" fill="#ddd3f0"/>'
    '<path d="M0 2.5h5" stroke="#b3a0da"/></pattern>'
)

FONTS = "system-ui,-apple-system,'Segoe UI',Roboto,'Noto Sans',sans-serif"
WHITE_INSIDE = {"r0"}
INK_INSIDE = {"plain", "soft", "ghost"}


def picture(function):
    """Registers a function that draws the picture of its name."""
    PICTURES[function.__name__] = function
    return function


class Drawing:
    """A picture under construction. Its caption is one sentence, below; its description says what one would see."""

    def __init__(self, height, title, caption, description=""):
        self.height, self.title, self.caption = height, title, caption
        self.description = description or caption
        self.parts = []
        self.text(WIDTH / 2, height - 16, caption, 13, kind="faint")

    def text(self, x, y, words, size=13, anchor="middle", kind="", weight=""):
        """Words with their baseline at y."""
        assert size >= SMALLEST, f"{self.title}: text of {size} px: {words}"
        width = 0.5 * size * len(str(words))  # about, in most fonts
        left = x - {"start": 0, "middle": width / 2, "end": width}[anchor]
        assert left >= 4 and left + width <= WIDTH - 4, f"{self.title}: this text leaves the picture: {words}"
        anchor = "" if anchor == "start" else f' text-anchor="{anchor}"'
        kind = f' class="{kind}"' if kind else ""
        weight = f' font-weight="{weight}"' if weight else ""
        self.parts.append(
            f'<text x="{x:g}" y="{y:g}" font-size="{size}"{anchor}{kind}{weight}>{escape(str(words))}</text>'
        )

    def box(self, x, y, width, height, words="", kind="plain", size=12, weight="", corner=3):
        """A rectangle with words in its middle, one line for each line of them."""
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="{corner}" class="{kind}"/>'
        )
        lines = str(words).split("\n") if words != "" else []
        inside = "w" if kind in WHITE_INSIDE else "" if kind in INK_INSIDE else "k"
        for number, line in enumerate(lines):
            middle = y + height / 2 + (number - (len(lines) - 1) / 2) * size * 1.3
            self.text(x + width / 2, middle + size * 0.36, line, size, kind=inside, weight=weight)

    def cells(self, x, y, values, kind="plain", width=24, height=20, size=12):
        """A tensor as a grid of its values, a list of rows. `kind` may be a function of (row, column)."""
        for row, line in enumerate(values):
            for column, value in enumerate(line):
                self.box(
                    x + column * width,
                    y + row * height,
                    width,
                    height,
                    value,
                    kind(row, column) if callable(kind) else kind,
                    size,
                    corner=0,
                )

    def grid(self, x, y, rows, columns, kind, width, height):
        """A tensor whose values don't matter: one path, however many cells."""
        lines = "".join(f"M{x:g} {y + row * height:g}h{columns * width:g}" for row in range(1, rows))
        lines += "".join(f"M{x + column * width:g} {y:g}v{rows * height:g}" for column in range(1, columns))
        self.parts.append(
            f'<path d="M{x:g} {y:g}h{columns * width:g}v{rows * height:g}h{-columns * width:g}z{lines}" '
            f'class="{kind}" stroke-width=".7"/>'
        )

    def bars(self, rectangles, kind):
        """Many rectangles (x, y, width, height) of one kind in one path, without frames."""
        if rectangles:
            shape = "".join(f"M{x:g} {y:g}h{width:g}v{height:g}h{-width:g}z" for x, y, width, height in rectangles)
            self.parts.append(f'<path d="{shape}" class="{kind}" style="stroke:none"/>')

    def device(self, x, y, width, height, label, rank):
        """A device or a rank: a frame in its colour, and its name on the frame."""
        self.parts.append(
            f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="7" class="f r{rank % 4}"/>'
        )
        self.chip(x + 8, y - 10, label, rank)

    def chip(self, x, y, label, rank, width=0):
        """The name of a device or a rank on its colour."""
        self.box(x, y, width or 14 + 7 * len(label), 20, label, f"r{rank % 4}", 12, "600", corner=10)

    def arrow(self, *points, kind="go", head=True):
        """A line through the points with a head at its end."""
        path = "M" + "L".join(f"{x:g} {y:g}" for x, y in points)
        self.parts.append(f'<path d="{path}{self.head(*points[-2:]) if head else ""}" class="{kind}"/>')

    def curve(self, start, bend, end, kind="go"):
        """An arrow that leaves the straight line in the direction of the point `bend`."""
        path = f"M{start[0]:g} {start[1]:g}Q{bend[0]:g} {bend[1]:g} {end[0]:g} {end[1]:g}"
        self.parts.append(f'<path d="{path}{self.head(bend, end)}" class="{kind}"/>')

    @staticmethod
    def head(before, end, size=6):
        angle = math.atan2(end[1] - before[1], end[0] - before[0])
        sides = [
            (end[0] - size * math.cos(angle + turn), end[1] - size * math.sin(angle + turn)) for turn in (0.5, -0.5)
        ]
        (x0, y0), (x1, y1) = sides
        return f"M{x0:.1f} {y0:.1f}L{end[0]:g} {end[1]:g}L{x1:.1f} {y1:.1f}"

    def line(self, x0, y0, x1, y1, kind="rule"):
        self.parts.append(f'<path d="M{x0:g} {y0:g}L{x1:g} {y1:g}" class="{kind}"/>')

    def tick(self, x, y):
        self.parts.append(f'<path d="M{x - 7:g} {y:g}l5 6l9-13" class="good"/>')

    def cross(self, x, y):
        self.parts.append(f'<path d="M{x - 6:g} {y - 6:g}l12 12m0-12l-12 12" class="bad"/>')

    def legend(self, x, y, entries):
        """Little boxes of kinds with their names, from left to right: entries are (kind, words)."""
        for kind, words in entries:
            self.box(x, y - 10, 16, 12, "", kind, corner=2)
            self.text(x + 22, y, words, 12, "start")
            x += 40 + 6.6 * len(words)

    def svg(self):
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{self.height}" '
            f'viewBox="0 0 {WIDTH} {self.height}" font-family="{FONTS}" role="img" aria-labelledby="t d">\n'
            f'<title id="t">{escape(self.title)}</title><desc id="d">{escape(self.description)}</desc>\n'
            f'<style>{STYLE}</style><defs>{PATTERNS}</defs>\n'
            f'<rect x=".5" y=".5" width="{WIDTH - 1}" height="{self.height - 1}" rx="10" class="card"/>\n'
            + "\n".join(self.parts)
            + "\n</svg>\n"
        )
