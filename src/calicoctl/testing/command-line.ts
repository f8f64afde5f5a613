// Runs calicoctl's commands in tests, on a SQLite datastore in a temporary directory, and returns their output.
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { openDatastore } from "../../datastore/index.ts";
import type { Resource, ResourceKey } from "../../model/index.ts";
import type { CommandIo } from "../../lib/command-line/io.ts";
import { runCommandLine } from "../index.ts";
import type { DatastoreCall } from "../table/flags.ts";

export interface Answer {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

/** Discards all output and has no input. */
export const silentIo = (env: CommandIo["env"]): CommandIo => ({
  env,
  out: () => {},
  err: () => {},
  readStdin: () => new Uint8Array(),
  isTerminal: () => false,
});

/** Returns a call without flags; the environment selects its datastore. */
export const callWith = (env: CommandIo["env"]): DatastoreCall => ({
  flags: { config: undefined, "log-level": "panic", context: undefined, "allow-version-mismatch": false },
  io: silentIo(env),
});

export class CommandLine implements Disposable {
  readonly folder = mkdtempSync(join(tmpdir(), "calicoctl-test-"));
  readonly env: Record<string, string | undefined> = {
    DATASTORE_TYPE: "sqlite",
    CALICO_SQLITE_PATH: join(this.folder, "calico.db"),
  };
  isTerminal = false;
  timeoutMs = 500;

  constructor() {
    writeFileSync(this.env["CALICO_SQLITE_PATH"] ?? "", "", { mode: 0o600 }); // a datastore that exists and is empty
  }

  async run(...args: readonly string[]): Promise<Answer> {
    return this.pipe("", ...args);
  }

  /** Runs a command with this standard input. */
  async pipe(stdin: string | Uint8Array, ...args: readonly string[]): Promise<Answer> {
    let [out, err] = ["", ""];
    const code = await runCommandLine("calicoctl", args, {
      env: this.env,
      out: (text) => void (out += text),
      err: (text) => void (err += text),
      readStdin: () => (typeof stdin === "string" ? Buffer.from(stdin) : stdin),
      isTerminal: () => this.isTerminal,
      timeoutMs: this.timeoutMs,
    });
    return { code, out, err };
  }

  /** Applies resources that a test requires. Throws if one is rejected. */
  async given(...documents: readonly string[]): Promise<void> {
    const answer = await this.pipe(documents.join("\n---\n"), "apply", "-f", "-");
    if (answer.code !== 0) throw new Error(answer.err);
  }

  /** Writes a file in the test's directory and returns its path. */
  file(name: string, content: string | Uint8Array): string {
    const path = join(this.folder, name);
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, content);
    return path;
  }

  /** Reads resources from the datastore without calicoctl's client. */
  async stored(kind: ResourceKey["kind"]): Promise<readonly Resource[]> {
    const path = this.env["CALICO_SQLITE_PATH"] ?? "";
    const store = await openDatastore({ type: "sqlite", path, isFallback: false });
    try {
      return (await store.list({ type: "resource", kind })).items.map((item) => item.value as Resource);
    } finally {
      await store.close();
    }
  }

  /** Writes a resource to the datastore without calicoctl's client and its validation. */
  async put(value: Resource): Promise<void> {
    const path = this.env["CALICO_SQLITE_PATH"] ?? "";
    const store = await openDatastore({ type: "sqlite", path, isFallback: false });
    try {
      await store.apply({ key: { type: "resource", kind: value.kind, name: value.metadata.name }, value });
    } finally {
      await store.close();
    }
  }

  [Symbol.dispose](): void {
    rmSync(this.folder, { recursive: true, force: true });
  }
}

export const pool = (name: string, cidr = "10.1.0.0/16", more = ""): string =>
  `apiVersion: projectcalico.org/v3\nkind: IPPool\nmetadata:\n  name: ${name}\nspec:\n  cidr: ${cidr}\n${more}`;

export const networkSet = (name: string, more = ""): string =>
  `apiVersion: projectcalico.org/v3\nkind: GlobalNetworkSet\nmetadata:\n  name: ${name}\n${more}spec:\n  nets: [10.0.0.1/32]\n`;

export const policy = (name: string, namespace?: string): string =>
  `apiVersion: projectcalico.org/v3\nkind: NetworkPolicy\nmetadata:\n  name: ${name}\n${
    namespace === undefined ? "" : `  namespace: ${namespace}\n`
  }spec:\n  selector: all()\n`;
