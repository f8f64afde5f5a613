// Lists the suites of recordings, and the executables that each of them runs.
import { existsSync } from "node:fs";
import { join } from "node:path";

export const recordings = join(import.meta.dir, "../../shared/golden");
export const hasRecordings = existsSync(join(recordings, "check.ts"));

export interface Suite {
  readonly drive: readonly string[];
  /** The entries of this folder are replayed in `count` concurrent parts, because each part mostly waits. */
  readonly parts?: { readonly folder: string; readonly count: number };
  /** The suite of the checker for recordings of a later version of Calico. No differences are allowed. */
  readonly later?: string;
}

/** Longest first. */
export const suites: Readonly<Record<string, Suite>> = {
  messages: { drive: ["--felix", "dist/calico-node -felix"], parts: { folder: "felix/messages", count: 4 } },
  felix: { drive: ["--felix", "dist/calico-node -felix"], parts: { folder: "felix/states", count: 4 } },
  datamodel: { drive: ["--calicoctl", "dist/calicoctl"] },
  calicoctl: { drive: ["--calicoctl", "dist/calicoctl"] },
  validation: { drive: ["--calicoctl", "dist/calicoctl"] },
  startup: { drive: ["--startup", "dist/calico-node -startup"] },
  bgp: { drive: ["--calicoctl", "dist/calicoctl"] },
  cni: { drive: ["--bin", "dist"] },
  ipam: { drive: ["--bin", "dist"] },
  "ipam-master": { drive: ["--bin", "dist"], later: "ipam" },
};
