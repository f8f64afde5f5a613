// Encodes and parses the verdicts of nftables rules and verdict maps.
import type { NetlinkWriter } from "../netlink/netlink-writer.ts";

export type Verdict =
  | { readonly kind: "accept" | "drop" | "return" }
  | { readonly kind: "jump" | "goto"; readonly chain: string };

const CODE: Readonly<Record<Verdict["kind"], number>> = {
  drop: 0,
  accept: 1,
  jump: -3,
  goto: -4,
  return: -5,
};
const NAME = new Map<number, Verdict["kind"]>(
  Object.entries(CODE).map(([name, code]) => [code, name as Verdict["kind"]]),
);

const NFTA_DATA_VERDICT = 2;
const NFTA_VERDICT_CODE = 1;
const NFTA_VERDICT_CHAIN = 2;

export function writeVerdict(w: NetlinkWriter, attribute: number, verdict: Verdict): void {
  const data = w.beginNest(attribute);
  const nest = w.beginNest(NFTA_DATA_VERDICT);
  w.be32(NFTA_VERDICT_CODE, CODE[verdict.kind] >>> 0);
  if ("chain" in verdict) w.string(NFTA_VERDICT_CHAIN, verdict.chain);
  w.endNest(nest);
  w.endNest(data);
}

/** Undefined for codes that calico-ts does not use (queue, break, continue). */
export function verdictFromCode(code: number, chain: string | undefined): Verdict | undefined {
  const kind = NAME.get(code | 0);
  if (kind === undefined) return undefined;
  if (kind === "jump" || kind === "goto") return chain === undefined ? undefined : { kind, chain };
  return { kind };
}
