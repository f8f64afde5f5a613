// Stores a lab's record, and names everything that the lab owns. All names are derived from the lab's name, so that an
// incomplete lab, whose `up` was killed, can be found and removed completely.
import { mkdirSync, readFileSync, readdirSync, rmdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { replaceFile } from "../lib/files/replace-file.ts";
import type { LabOptions } from "./options.ts";

export const LAB_ROOT = "/var/lib/calico-lab";
/** Path, inside a host, of the folder that all hosts of the lab share. */
export const HOST_DATASTORE = "/var/lib/calico/datastore";

export interface LabPod {
  readonly namespace: string;
  readonly name: string;
  readonly node: string;
  readonly addresses: readonly string[];
  readonly labels: Readonly<Record<string, string>>;
  /** Named ports, which policies can refer to. */
  readonly ports?: readonly { readonly name: string; readonly protocol: string; readonly port: number }[];
}

/** A pod to be created. */
export type NewPod = Omit<LabPod, "addresses"> & {
  /** The address that the CNI plugin must assign; by default IPAM chooses one of each family. */
  readonly requestedAddress?: string;
};

export interface LabRecord {
  readonly options: LabOptions;
  /** In a lab with kubelets, only the pods that existed when `break datastore` stopped the API server. */
  readonly pods: readonly LabPod[];
  /** Faults of `break`, for `heal`. */
  readonly faults: readonly string[];
  /** Variables set by `calico lab set`, by node. */
  readonly settings?: Readonly<Record<string, Readonly<Record<string, string>>>>;
}

export class LabFolder {
  readonly path: string;
  constructor(readonly name: string) {
    this.path = join(LAB_ROOT, name);
  }

  /** Network namespace of a host, or of the fabric that joins them. */
  namespace(host: string): string {
    return `lab-${this.name}-${host}`;
  }
  get namespacePrefix(): string {
    return `lab-${this.name}-`;
  }
  /** Mounted in each host at `HOST_DATASTORE`. */
  get shared(): string {
    return join(this.path, "shared");
  }
  log(process: string): string {
    return join(this.path, "log", `${process}.log`);
  }
  /** Lock file of commands that change the lab. */
  get lock(): string {
    return `${this.path}.lock`;
  }
  pidFile(process: string): string {
    return join(this.path, "pid", process);
  }

  create(): void {
    for (const folder of ["shared", "log", "pid"]) mkdirSync(join(this.path, folder), { recursive: true, mode: 0o755 });
  }

  read(): LabRecord | undefined {
    try {
      return JSON.parse(readFileSync(join(this.path, "lab.json"), "utf8")) as LabRecord;
    } catch {
      return undefined; // no lab, or `up` was killed before it wrote the record
    }
  }

  write(record: LabRecord): void {
    replaceFile(join(this.path, "lab.json"), `${JSON.stringify(record, null, 2)}\n`);
  }

  /** Also removes the lock file; a process that waits for the lock notices this and creates a new one. */
  remove(): void {
    rmSync(this.path, { recursive: true, force: true });
    rmSync(this.lock, { force: true });
    try {
      rmdirSync(LAB_ROOT);
    } catch {
      // not empty: other labs exist
    }
  }
}

export function listLabs(): string[] {
  try {
    return readdirSync(LAB_ROOT)
      .filter((entry) => !entry.includes("."))
      .sort();
  } catch {
    return [];
  }
}
