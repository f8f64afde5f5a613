// Draws the output of a terminal as SVG: text with the few colours that the programs use. It supports carriage returns and
// erased lines, but no cursor movement.

const STYLES: Readonly<Record<string, string>> = {
  "1": 'font-weight="bold"',
  "2": 'fill-opacity="0.6"',
  "31": 'fill="#ff6b6b"',
  "32": 'fill="#69db7c"',
  "33": 'fill="#ffd43b"',
};
const [CHAR, LINE, PAD] = [8.4, 19, 16];

export function drawTerminal(text: string): string {
  const lines = text.split("\n").map(visibleText);
  const widest = Math.max(...lines.map((line) => [...line.replaceAll(/\x1b\[[\d;]*m/g, "")].length), 40);
  const [width, height] = [Math.ceil(widest * CHAR + 2 * PAD), lines.length * LINE + 2 * PAD];
  const body = lines.map(
    (line, i) => `<text x="${PAD}" y="${PAD + (i + 0.75) * LINE}" xml:space="preserve">${spans(line)}</text>`,
  );
  return `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}" font-family="ui-monospace, 'DejaVu Sans Mono', Menlo, monospace" font-size="14" fill="#e9ecef">
<rect width="100%" height="100%" rx="8" fill="#1b1e23"/>
${body.join("\n")}
</svg>
`;
}

/** Returns the text of a picture of `drawTerminal`, without colours. */
export function pictureText(svg: string): string {
  return [...svg.matchAll(/<text [^>]*>(.*)<\/text>/g)]
    .map(([, line = ""]) =>
      line
        .replaceAll(/<[^>]*>/g, "")
        .replaceAll("&lt;", "<")
        .replaceAll("&gt;", ">")
        .replaceAll("&amp;", "&"),
    )
    .join("\n");
}

/** Returns the visible text of a line that contains carriage returns. */
function visibleText(line: string): string {
  const last = line.split("\r").findLast((part) => part !== "") ?? "";
  return last.replaceAll("\x1b[K", "");
}

function spans(line: string): string {
  let style = "";
  return line
    .split(/(\x1b\[[\d;]*m)/)
    .map((part) => {
      const code = /^\x1b\[([\d;]*)m$/.exec(part)?.[1];
      if (code !== undefined) {
        style = STYLES[code] ?? "";
        return "";
      }
      if (part === "") return "";
      const text = part.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
      return style === "" ? text : `<tspan ${style}>${text}</tspan>`;
    })
    .join("");
}
