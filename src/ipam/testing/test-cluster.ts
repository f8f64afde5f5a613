// Provides a small cluster for tests: pools and nodes in a memory datastore, IPAM clients, and a clock set by the test.
import type { Datastore } from "../../datastore/index.ts";
import { type IpVersion, parseAddress, parseCidr } from "../../lib/ip/ip.ts";
import type { Block, BlockAffinity, IpamConfig, IpamHandle, KindName, Labels } from "../../model/index.ts";
import { Ipam } from "../ipam.ts";
import type { AssignmentCache } from "../assign/assignment-cache.ts";
import { MemoryDatastore } from "./memory-datastore.ts";

export class TestCluster {
  readonly store = new MemoryDatastore();
  /** Starts at 2026-01-01; tests advance it. */
  nowMs = 1_767_225_600_000;
  readonly ipam = this.client();

  /** Returns a separate IPAM client, as another process would have. */
  client(store: Datastore = this.store, cache?: AssignmentCache): Ipam {
    return new Ipam({ datastore: store, cache, nowMs: () => this.nowMs, random: () => 0.5 });
  }

  async pool(
    name: string,
    cidr: string,
    spec: Readonly<Record<string, unknown>> = {},
    status?: unknown,
  ): Promise<void> {
    await this.resource("IPPool", name, { cidr, ...spec }, {}, status);
  }

  async node(name: string, labels: Labels = {}): Promise<void> {
    await this.resource("Node", name, {}, labels);
  }

  async resource(kind: KindName, name: string, spec: unknown, labels: Labels = {}, status?: unknown): Promise<void> {
    const value = { apiVersion: "projectcalico.org/v3", kind, metadata: { name, labels }, spec, status };
    await this.store.apply({ key: { type: "resource", kind, name }, value });
  }

  async config(config: Partial<IpamConfig>): Promise<void> {
    const value = { strictAffinity: false, autoAllocateBlocks: true, maxBlocksPerHost: 0, ...config };
    await this.store.apply({ key: { type: "ipamConfig" }, value });
  }

  /** Assigns addresses to a handle. Returns them as text. */
  async assign(
    host: string,
    handleId: string,
    options: { count?: number; version?: IpVersion; pools?: string[] } = {},
  ) {
    const result = await this.ipam.autoAssign({
      host,
      handleId,
      attributes: { node: host },
      use: "Workload",
      version: options.version ?? 4,
      count: options.count ?? 1,
      pools: (options.pools ?? []).map(parseCidr),
    });
    return result.addresses.map(String);
  }

  assignAddress(host: string, handleId: string, address: string): Promise<number | undefined> {
    return this.ipam.assignAddress({ host, handleId, attributes: { node: host }, address: parseAddress(address) });
  }

  release(...addresses: string[]) {
    return this.ipam.release(addresses.map((address) => ({ address: parseAddress(address) })));
  }

  blocks(): Record<string, Block> {
    return Object.fromEntries(
      this.store.snapshot().flatMap(({ key, value }) => (key.type === "block" ? [[key.cidr, value as Block]] : [])),
    );
  }

  block(cidr: string): Block {
    const block = this.blocks()[cidr];
    if (block === undefined) throw new Error(`no block ${cidr}`);
    return block;
  }

  /** `host cidr` → state. */
  affinities(): Record<string, string> {
    return Object.fromEntries(
      this.store
        .snapshot()
        .flatMap(({ key, value }) =>
          key.type === "blockAffinity" ? [[`${key.host} ${key.cidr}`, (value as BlockAffinity).state]] : [],
        ),
    );
  }

  handles(): Record<string, Record<string, number>> {
    return Object.fromEntries(
      this.store
        .snapshot()
        .flatMap(({ key, value }) => (key.type === "ipamHandle" ? [[key.handleId, (value as IpamHandle).block]] : [])),
    );
  }
}
