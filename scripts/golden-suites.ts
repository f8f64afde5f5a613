// The suites of recordings, where they lie, and which of our executables each one drives.
import { existsSync } from "node:fs";
import { join } from "node:path";

export const recordings = join(import.meta.dir, "../../shared/golden");
export const areRecordingsThere = existsSync(join(recordings, "check.ts"));

export interface Suite {
  readonly drive: readonly string[];
  /** Folder whose entries are replayed side by side in that many parts: most of the time each of them waits. */
  readonly parts?: { readonly folder: string; readonly count: number };
  /** The recordings of Calico's later version, where they are complete: the checker's suite, and nothing may differ. */
  readonly later?: string;
}

/** The long ones first. */
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
