// Measures with real packets which pods can connect to which, for all pairs concurrently.
import { hasErrno, PacketProber, type ProbeOutcome, type ProbeProtocol } from "../kernel/index.ts";
import { parseAddress } from "../lib/ip/ip.ts";
import { alignColumns, textWidth } from "../lib/terminal/table.ts";
import type { LabPod } from "./folder.ts";
import type { Lab } from "./lab.ts";
import { paint } from "./terminal.ts";

export interface MatrixCell {
  readonly from: string;
  readonly to: string;
  readonly address: string;
  readonly result: ProbeOutcome["result"];
}

export interface MatrixOptions {
  readonly protocol: ProbeProtocol;
  readonly port: number;
  readonly timeoutMs: number;
  readonly version: 4 | 6;
  /** Only pods of this namespace. */
  readonly namespace?: string;
}

export async function measureMatrix(lab: Lab, options: MatrixOptions): Promise<MatrixCell[]> {
  const { namespace } = options;
  const pods = lab.pods.filter((pod) => namespace === undefined || pod.namespace === namespace);
  using open = lab.openPods(pods);
  using prober = new PacketProber();
  for (const target of open.targets.values())
    try {
      prober.listen(target, options.protocol, options.port);
    } catch (error) {
      if (!hasErrno(error, "EADDRINUSE")) throw error; // the pod itself listens on this port
    }
  const pairs = pods.flatMap((from) => pods.flatMap((to) => pairOf(from, to, options.version)));
  const requests = pairs.flatMap(({ from, address }) => {
    const target = open.targets.get(from);
    return target === undefined
      ? []
      : [{ from: target, to: parseAddress(address), protocol: options.protocol, port: options.port }];
  });
  const outcomes = await prober.probe(requests, { timeoutMs: options.timeoutMs });
  return pairs.map(({ from, to, address }, i) => ({
    from: nameOf(from),
    to: nameOf(to),
    address,
    result: outcomes[i]?.result ?? "silent",
  }));
}

function pairOf(from: LabPod, to: LabPod, version: 4 | 6): { from: LabPod; to: LabPod; address: string }[] {
  const address = to.addresses.find((a) => a.includes(":") === (version === 6));
  return address === undefined ? [] : [{ from, to, address }];
}

const nameOf = (pod: LabPod): string => `${pod.namespace}/${pod.name}`;
const SYMBOL = { reached: "✓", refused: "!", silent: "✗" } as const;
const COLOUR = { reached: "green", refused: "red", silent: "red" } as const;

/** @param width width of the terminal; if the names do not fit, the columns are numbered */
export function renderMatrix(cells: readonly MatrixCell[], colour: boolean, width = 120): string {
  const names = [...new Set(cells.map((cell) => cell.from))];
  const short = (name: string) => name.replace(/^default\//, "");
  const byPair = new Map(cells.map((cell) => [`${cell.from} ${cell.to}`, cell]));
  const draw = (title: (name: string, i: number) => string, heading: (name: string, i: number) => string) =>
    alignColumns([
      ["from \\ to", ...names.map(heading)],
      ...names.map((from, i) => [
        title(from, i),
        ...names.map((to) => {
          const result = byPair.get(`${from} ${to}`)?.result;
          return result === undefined ? "" : paint(colour, COLOUR[result], SYMBOL[result]);
        }),
      ]),
    ]);
  const named = draw(short, short);
  const isTooWide = Math.max(...named.split("\n").map((line) => textWidth(line))) > width;
  const numbered = (name: string, i: number) => `${String(i + 1).padStart(String(names.length).length)} ${short(name)}`;
  const text = isTooWide ? draw(numbered, (_, i) => String(i + 1)) : named;
  const reached = cells.filter((cell) => cell.result === "reached").length;
  const legend = `${SYMBOL.reached} reached  ${SYMBOL.silent} no response  ${SYMBOL.refused} refused`;
  return `${text}\n${legend}   ${reached} of ${cells.length} connections work`;
}
