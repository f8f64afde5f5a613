// Where a lab keeps what it must remember, and how everything it owns is named: from the lab's name alone, so that a
// lab whose `up` was killed halfway is found and removed as completely as every other.
import { mkdirSync, readFileSync, readdirSync, rmdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { replaceFile } from "../lib/files/replace-file.ts";
import type { LabOptions } from "./options.ts";

export const LAB_ROOT = "/var/lib/calico-lab";
/** Where a host sees the folder that all hosts of its lab share. */
export const HOST_DATASTORE = "/var/lib/calico/datastore";

export interface LabPod {
  readonly namespace: string;
  readonly name: string;
  readonly node: string;
  readonly addresses: readonly string[];
  readonly labels: Readonly<Record<string, string>>;
  /** Known by name to policies. */
  readonly ports?: readonly { readonly name: string; readonly protocol: string; readonly port: number }[];
}

/** One that is asked for. */
export type NewPod = Omit<LabPod, "addresses"> & {
  /** The address that the CNI plugin must assign; by default IPAM chooses one of each family. */
  readonly requestedAddress?: string;
};

export interface LabRecord {
  readonly options: LabOptions;
  /** Of a Kubernetes cluster only what was there when its API server was stopped. */
  readonly pods: readonly LabPod[];
  /** Links cut and processes stopped by `break`, to be undone by `heal`. */
  readonly faults: readonly string[];
  /** What nodes are told by `set`, beyond their plan. */
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
  /** Bound into every host: what hosts of one machine share. */
  get shared(): string {
    return join(this.path, "shared");
  }
  log(process: string): string {
    return join(this.path, "log", `${process}.log`);
  }
  /** Held by the one command that changes the lab. */
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
      return undefined; // no lab, or an `up` that was killed before it wrote any
    }
  }

  write(record: LabRecord): void {
    replaceFile(join(this.path, "lab.json"), `${JSON.stringify(record, null, 2)}\n`);
  }

  /** With the lock: whoever waits for it finds its file gone and makes another. */
  remove(): void {
    rmSync(this.path, { recursive: true, force: true });
    rmSync(this.lock, { force: true });
    try {
      rmdirSync(LAB_ROOT);
    } catch {
      // there are other labs
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
