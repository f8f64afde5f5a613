// Drops the packets between node agents and the datastore or Typha for some time, and measures how soon the agents are up to
// date afterwards. The servers keep running.
import { randomBytes } from "node:crypto";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect } from "bun:test";
import { pollUntil } from "../../src/lib/testing/eventually.ts";
import { delay } from "../../src/lib/retry.ts";
import { kubeconfigText } from "../kubernetes/api-server.ts";
import type { Cluster } from "../kubernetes/cluster.ts";
import { CutPath } from "./cut-path.ts";
import { EtcdServer } from "./etcd-server.ts";
import { FelixProcess } from "./felix-process.ts";
import { freePort } from "./free-port.ts";

/** Maximum time from the end of a cut until an update is received. */
export const RECOVERY_MS = 20_000;
const HOST_METADATA = 14;
const METRICS_PORT = 9091; // in the namespace of the test
const SUPPORT = import.meta.dir;

/** A running agent in a namespace whose path to the server can be cut. */
export class AgentBehindPath implements AsyncDisposable {
  readonly #resources = new AsyncDisposableStack();
  /** Prefix of the nodes that this test adds, because other tests may use the same cluster. */
  readonly #prefix = `node-${randomBytes(3).toString("hex")}-`;
  #nodes = 0;

  private constructor(
    readonly felix: FelixProcess,
    readonly path: CutPath,
    /** Writes to the datastore directly, not through the path. */
    readonly putNode = (name: string, address: string) => felix.put("Node", name, { bgp: { ipv4Address: address } }),
  ) {
    this.#resources.use(path);
    this.#resources.use(felix);
  }

  /** An agent that reads the datastore directly. */
  static async onEtcd(
    options: { readonly tls?: boolean; readonly endpoints?: number } = {},
  ): Promise<AgentBehindPath & { readonly endpoints: readonly string[] }> {
    const etcd = await EtcdServer.start(options.tls === undefined ? {} : { tls: options.tls });
    const path = new CutPath();
    const agent = new AgentBehindPath(await FelixProcess.prepare(etcd.config), path);
    agent.#resources.use(etcd);
    const endpoints = Array.from({ length: options.endpoints ?? 1 }, () => path.relayTo(etcd.url));
    await agent.start({ DATASTORE_TYPE: "etcdv3", ...etcdEnvironment(etcd, endpoints.join(",")) });
    return Object.assign(agent, { endpoints });
  }

  /** An agent that reads the Kubernetes API. */
  static async onKubernetes(cluster: Cluster): Promise<AgentBehindPath> {
    const putNode = async (name: string, address: string): Promise<void> => {
      const annotations = { "projectcalico.org/IPv4Address": address };
      await cluster.put("/api/v1/nodes", { metadata: { name, annotations } });
    };
    await putNode("node-a", "192.0.2.10/24"); // the agent's own
    const path = new CutPath();
    const agent = new AgentBehindPath(await FelixProcess.prepare(cluster.config), path, putNode);
    const { url, ca, adminToken } = cluster.server;
    const kubeconfig = join(agent.felix.folder, "kubeconfig");
    writeFileSync(kubeconfig, kubeconfigText(path.relayTo(url), ca, adminToken), { mode: 0o600 });
    await agent.start({ DATASTORE_TYPE: "kubernetes", KUBECONFIG: kubeconfig });
    return agent;
  }

  /** An agent that reads a Typha, which reads the datastore outside of the namespace. */
  static async onTypha(): Promise<AgentBehindPath> {
    const felix = await FelixProcess.prepare();
    const path = new CutPath();
    const agent = new AgentBehindPath(felix, path);
    const port = await freePort();
    const typha = Bun.spawn([process.execPath, join(SUPPORT, "run-program.ts")], {
      env: {
        PATH: process.env["PATH"] ?? "",
        PROGRAM: "calico-typha",
        TYPHA_DATASTORETYPE: "sqlite",
        CALICO_SQLITE_PATH: join(felix.folder, "calico.db"),
        TYPHA_SERVERPORT: String(port),
        TYPHA_SERVERHOST: "127.0.0.1",
        TYPHA_LOGFILEPATH: "none",
      },
      stdout: "ignore",
      stderr: "ignore",
    });
    agent.#resources.defer(async () => {
      typha.kill("SIGKILL");
      await typha.exited;
    });
    await agent.start({ FELIX_TYPHAADDR: new URL(path.relayTo(`http://127.0.0.1:${port}`)).host });
    return agent;
  }

  async start(env: Readonly<Record<string, string>>): Promise<void> {
    const metrics = { FELIX_PROMETHEUSMETRICSENABLED: "true", FELIX_PROMETHEUSMETRICSHOST: "127.0.0.1" };
    const port = { FELIX_PROMETHEUSMETRICSPORT: String(METRICS_PORT) };
    this.felix.start({ ...metrics, ...port, ...env }, [], this.path.within);
    await this.addNode();
    await pollUntil(
      () => [this.nodesReceived, this.felix.output],
      ([received]) => received === this.#nodes,
      60_000,
    );
  }

  /** Number of this test's nodes that the dataplane driver has received. */
  get nodesReceived(): number {
    const hosts = this.felix.messages().filter(({ tag }) => tag === HOST_METADATA);
    return hosts.filter(({ body }) => Buffer.from(body, "base64").includes(this.#prefix)).length;
  }

  readiness(): { readonly status: number; readonly body: string } {
    return this.path.page(`http://127.0.0.1:${this.felix.healthPort}/readiness`);
  }

  /** The value of a metric; NaN if it does not exist. */
  metric(name: string): number {
    const { body } = this.path.page(`http://127.0.0.1:${METRICS_PORT}/metrics`);
    return Number(new RegExp(`^${name} (\\S+)$`, "m").exec(body)?.[1]);
  }

  async addNode(): Promise<void> {
    this.#nodes++;
    await this.putNode(`${this.#prefix}${this.#nodes}`, `192.0.2.${10 + this.#nodes}/24`);
  }

  /** Waits until the agent has received all nodes; returns the seconds that took. */
  async catchUp(withinMs: number): Promise<number> {
    const started = performance.now();
    await pollUntil(
      () => this.nodesReceived,
      (received) => received === this.#nodes,
      withinMs,
    );
    return (performance.now() - started) / 1000;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#resources.disposeAsync();
  }
}

function etcdEnvironment({ config: { tls } }: EtcdServer, url: string): Record<string, string> {
  const file = (source: unknown) => (source as { readonly file: string }).file;
  return {
    ETCD_ENDPOINTS: url,
    ...(tls === undefined
      ? {}
      : {
          ETCD_CA_CERT_FILE: file(tls.ca),
          ETCD_CERT_FILE: file(tls.cert),
          ETCD_KEY_FILE: file(tls.key),
        }),
  };
}

/**
 * Drops all packets for a time; the agent stays ready, reports how old its view is, and is up to date soon afterwards.
 * @returns the seconds from the end of the cut until the agent has received an update
 */
export async function surviveCut(agent: AgentBehindPath, seconds: number): Promise<number> {
  expect(agent.metric("felix_datastore_view_age_seconds")).toBe(0);
  agent.path.cut();
  const started = performance.now();
  await agent.addNode();
  await pollUntil(
    () => agent.felix.output,
    (output) => /no answer from (the datastore|Typha); retrying.* seconds=3\d/.test(output),
    seconds * 1000,
  );
  const { status, body } = agent.readiness();
  expect(status).toBe(200);
  expect(body).toMatch(/view of the datastore is \d+ s old/);
  const age = agent.metric("felix_datastore_view_age_seconds");
  expect(age).toBeGreaterThanOrEqual(30);
  expect(age).toBeLessThan(seconds);
  await delay(Math.max(0, seconds * 1000 - (performance.now() - started)));
  expect(agent.nodesReceived).toBe(1);
  agent.path.open();
  const recovered = await agent.catchUp(RECOVERY_MS);
  // The other kinds resume on their own.
  await pollUntil(
    () => agent.metric("felix_datastore_view_age_seconds"),
    (age) => age === 0,
    RECOVERY_MS - recovered * 1000,
  );
  expect(agent.readiness().body).not.toContain("view of the datastore");
  // The program's output reaches this process a moment later than the metric.
  await pollUntil(
    () => agent.felix.output,
    (output) => /(the datastore|Typha) answers again/.test(output),
  );
  return recovered;
}

/**
 * Drops the packets of existing connections for good.
 * @returns the seconds until the agent has received an update on a new connection
 */
export async function surviveBlackHole(agent: AgentBehindPath): Promise<number> {
  agent.path.cutExisting();
  await agent.addNode();
  const recovered = await agent.catchUp(RECOVERY_MS);
  expect(agent.readiness().status).toBe(200);
  return recovered;
}
