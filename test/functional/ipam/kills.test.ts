// Tests IPAM with 32 writers in 4 processes on one datastore, which are killed with SIGKILL at random times and restarted: no
// address ever has two owners, and after all handles are released nothing is left. SEED=n repeats the choices of a run: which
// process is killed, after how many assignments and what delay, and the operations of each writer. The kernel's scheduling of
// the processes is not repeated.
import { afterAll, expect, test } from "bun:test";
import { type ChildProcess, spawn } from "node:child_process";
import { appendFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type DatastoreConfig, openDatastore } from "../../../src/datastore/index.ts";
import { Ipam, UnknownHandle } from "../../../src/ipam/index.ts";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import { EtcdServer } from "../../support/etcd-server.ts";
import { randomNumbers } from "../../support/random-numbers.ts";

const PROCESSES = 4;
const HOSTS_EACH = 8;
const KILLS = 12;
/** A process is killed after at most this many assignments. */
const MAX_ASSIGNMENTS = 25;

const SEED = Number(process.env["SEED"] || Math.floor(Math.random() * 2 ** 32));
console.log(`kills: repeat with SEED=${SEED}`);

const folder = mkdtempSync(join(tmpdir(), "ipam-kills-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

test("CI-050 32 writers and kills on SQLite: no address is assigned twice, and nothing is left", () =>
  runWriters({ type: "sqlite", path: join(folder, "calico.db"), isFallback: false }));

test("CI-050 32 writers and kills on etcd: no address is assigned twice, and nothing is left", async () => {
  await using etcd = await EtcdServer.start();
  await runWriters(etcd.config);
});

async function runWriters(config: DatastoreConfig): Promise<void> {
  const store = await openDatastore(config);
  const put = (kind: "IPPool" | "Node", name: string, spec: unknown) =>
    store.apply({
      key: { type: "resource", kind, name },
      value: { apiVersion: "projectcalico.org/v3", kind, metadata: { name }, spec },
    });
  // 32 hosts share 24 blocks of 16 addresses, so that they must borrow addresses and wait for each other.
  await put("IPPool", "p", { cidr: "10.0.0.0/24", blockSize: 28 });
  await put("IPPool", "q", { cidr: "10.0.1.0/25", blockSize: 28 });
  const hosts = Array.from({ length: PROCESSES * HOSTS_EACH }, (_, i) => `host-${i}`);
  for (const host of hosts) await put("Node", host, {});

  const random = randomNumbers(SEED);
  const ledger = new Ledger(join(folder, `${config.type}.log`));
  const slots = Array.from({ length: PROCESSES }, (_, slot) => new Writer(config, slot, hosts, ledger));
  const ipam = new Ipam({ datastore: store });
  const release = async (handles: readonly string[]) => {
    const left = handles.values();
    const worker = async () => {
      for (const handle of left)
        await ipam.releaseByHandle(handle).catch((error: unknown) => {
          if (!(error instanceof UnknownHandle)) throw error;
        });
    };
    await Promise.all(Array.from({ length: 8 }, worker));
  };
  try {
    for (const slot of slots) slot.start(random(2 ** 32));
    for (let i = 0; i < KILLS; i++) {
      const victim = slots[random(slots.length)];
      if (victim === undefined) throw new Error("no writers");
      const assignments = 1 + random(MAX_ASSIGNMENTS);
      await eventually(() => ledger.assigned(victim.name) >= assignments);
      await Bun.sleep(random(5000) / 1000); // at any point of the next operation
      const orphans = await victim.kill();
      ledger.drop(orphans); // from now on their addresses may be assigned again
      await release(orphans);
      victim.start(random(2 ** 32));
    }
    const rest = (await Promise.all(slots.map((slot) => slot.kill()))).flat();
    expect(ledger.faults()).toEqual([]);
    expect(ledger.assigned()).toBeGreaterThan(KILLS);
    await release(rest);
    expect((await store.list({ type: "ipamHandle" })).items).toEqual([]);
    const used = (await store.list({ type: "block" })).items.flatMap(({ value }) => value.attributes);
    expect(used).toEqual([]);
    await ipam.repair(await ipam.inconsistencies());
    expect(await ipam.inconsistencies()).toEqual([]);
  } finally {
    for (const slot of slots) await slot.kill();
    await store.close();
  }
}

/** The log of all writers, in the order of events: which handle had which address when. */
class Ledger {
  constructor(readonly file: string) {
    writeFileSync(file, "");
  }

  drop(handles: readonly string[]): void {
    appendFileSync(this.file, handles.map((handle) => `drop ${handle}\n`).join(""));
  }

  #events(): { what: string; handle: string; address: string }[] {
    return readFileSync(this.file, "utf8")
      .split("\n")
      .map((line) => line.split(" "))
      .map(([what = "", handle = "", address = ""]) => ({ what, handle, address }));
  }

  /** Returns the number of assigned addresses, of one writer process or of all. */
  assigned(name?: string): number {
    return this.#events().filter(
      ({ what, handle }) => what === "got" && (name === undefined || handle.startsWith(`${name}_`)),
    ).length;
  }

  /** Returns the handles of a writer process that may have addresses. */
  openHandles(name: string): string[] {
    const open = new Set<string>();
    for (const { what, handle } of this.#events())
      if (!handle.startsWith(`${name}_`)) continue;
      else if (what === "want") open.add(handle);
      else if (what === "gone") open.delete(handle);
    return [...open];
  }

  /** Returns addresses that were assigned although another handle had not started to release them. */
  faults(): string[] {
    const owners = new Map<string, string>();
    const faults: string[] = [];
    for (const { what, handle, address } of this.#events()) {
      if (what === "drop") for (const [held, owner] of owners) if (owner === handle) owners.delete(held);
      if (what !== "got") continue;
      const other = owners.get(address);
      if (other !== undefined) faults.push(`${address} assigned to ${handle}, but ${other} has it`);
      owners.set(address, handle);
    }
    return faults;
  }
}

class Writer {
  #child: ChildProcess | undefined;
  #life = 0;

  constructor(
    readonly config: DatastoreConfig,
    readonly slot: number,
    readonly hosts: readonly string[],
    readonly ledger: Ledger,
  ) {}

  get name(): string {
    return `w${this.slot}.${this.#life}`;
  }

  start(seed: number): void {
    const mine = this.hosts.slice(this.slot * HOSTS_EACH, (this.slot + 1) * HOSTS_EACH);
    const script = join(import.meta.dir, "writer.ts");
    this.#life++;
    const args = [script, JSON.stringify(this.config), this.name, mine.join(","), this.ledger.file, String(seed)];
    this.#child = spawn(process.execPath, args, { stdio: ["ignore", "inherit", "inherit"] });
  }

  /** Kills the process and returns the handles that may still have addresses. */
  async kill(): Promise<readonly string[]> {
    const child = this.#child;
    this.#child = undefined;
    if (child === undefined) return [];
    const gone = new Promise((resolve) => child.once("exit", resolve));
    child.kill("SIGKILL");
    await gone;
    return this.ledger.openHandles(this.name);
  }
}
