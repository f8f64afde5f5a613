// Provides what attacks use: the tenant's account, the tenant's pods with raw sockets, a fake kubelet that attaches pods, and
// checks of success.
import { closeSync, openSync } from "node:fs";
import type { LabPod, NewPod } from "../../src/lab/folder.ts";
import type { Lab } from "../../src/lab/lab.ts";
import { addPod, deletePod, podNamespace } from "../../src/lab/pods.ts";
import type { ProbeEndpoint } from "../../src/kernel/index.ts";
import type { IpAddress } from "../../src/lib/ip/ip.ts";
import { ipPacket } from "../functional/dataplane/raw-packet.ts";
import { ETHERTYPE, FrameSocket, frame, HOST_MAC, ReceivedPackets } from "../support/raw-frames.ts";
import { Api, type Reply } from "./api.ts";
import { changes, neighbourState, type NeighbourState } from "./neighbour-state.ts";
import { addressOf, CHECK_PORT, NEIGHBOUR, openScene, type Scene, TENANT } from "./scene.ts";

/** Rejected by the API server or the CNI plugin; without effect; successful; not executed. */
export type Outcome = "refused" | "ineffective" | "SUCCEEDED" | "skipped";
export interface Result {
  readonly outcome: Outcome;
  readonly detail?: string;
}
export interface Attack {
  readonly name: string;
  run(context: AttackContext): Promise<Result>;
}

export const INEFFECTIVE: Result = { outcome: "ineffective" };
/** The attack succeeded if `successes` is not empty. */
export const judged = (successes: readonly string[]): Result =>
  successes.length === 0 ? INEFFECTIVE : { outcome: "SUCCEEDED", detail: successes.join("; ") };
/** For requests that RBAC does not allow the tenant: the attack succeeded if the status is below 400. */
export function judgedReply(what: string, { status, body }: Reply): Result {
  return status < 400 ? { outcome: "SUCCEEDED", detail: `${what}: status ${status}` } : refusal(what, { status, body });
}
/** @throws if the status is not a rejection, because the attack itself is then faulty and proves nothing */
function refusal(what: string, { status, body }: Reply): Result {
  if (![403, 422].includes(status)) throw new Error(`${what}: ${status} ${JSON.stringify(body).slice(0, 300)}`);
  return { outcome: "refused", detail: `status ${status}` };
}

export const EVIL_MAC = "02:00:00:00:00:66";
/** Time limit for the arrival of packets. */
const ARRIVAL_MS = 250;
/** Time limit until agents have programmed an object of the tenant. */
export const PROGRAMMED_MS = 1_000;
const PREFIX = "cni.projectcalico.org";

export class AttackContext implements Disposable {
  readonly scene: Scene;
  readonly tenant: Api;
  readonly kubelet: Api;
  #before: NeighbourState | undefined;
  #count = 0;
  #nonce: number;
  readonly #opened: Disposable[] = [];

  constructor(
    readonly lab: Lab,
    readonly worker: number,
    readonly random: (below: number) => number,
  ) {
    this.scene = openScene(lab);
    const { server, ca, tenantToken, kubeletToken } = this.scene;
    this.tenant = new Api(server, ca, tenantToken);
    this.kubelet = new Api(server, ca, kubeletToken);
    this.#nonce = (worker + 1) * 0x1000000;
  }

  pick<T>(list: readonly T[]): T {
    const found = list[this.random(list.length)];
    if (found === undefined) throw new Error("nothing to pick from");
    return found;
  }
  /** Returns a name that no other attack uses. */
  unique(prefix: string): string {
    return `${prefix}-${this.worker}-${this.#count++}`;
  }
  get node(): string {
    return this.pick(this.lab.plan.nodes).name;
  }
  pod(title: string): LabPod {
    const found = this.scene.pods.find(({ namespace, name }) => title === `${namespace}/${name}`);
    if (found === undefined) throw new Error(`no pod ${title}`);
    return found;
  }
  get database(): LabPod {
    return this.pod(`${NEIGHBOUR}/db`);
  }
  get victim(): LabPod {
    return this.pick(this.scene.pods.filter(({ namespace }) => namespace === NEIGHBOUR));
  }
  /** Returns a pod of the tenant with CAP_NET_RAW. */
  get attacker(): LabPod {
    return this.pod(`${TENANT}/${this.pick(["mallory1", "mallory2"])}`);
  }
  get versions(): readonly (4 | 6)[] {
    return this.lab.options.ipv6 ? [4, 6] : [4];
  }

  /** Returns what has changed in the neighbour's state since the first call. */
  async disturbed(): Promise<string[]> {
    const now = await neighbourState(this.lab, this.scene, this.kubelet);
    this.#before ??= now;
    return changes(this.#before, now);
  }

  targetOf(pod: LabPod): ProbeEndpoint {
    const opened = this.lab.openPods([pod]);
    this.#opened.push(opened);
    const target = opened.targets.get(pod);
    if (target === undefined) throw new Error(`pod ${pod.name} has no namespace`);
    return target;
  }
  targetOfNode(node: string): ProbeEndpoint {
    const namespace = openSync(`/run/netns/${this.lab.folder.namespace(node)}`, "r");
    this.#opened.push({ [Symbol.dispose]: () => closeSync(namespace) });
    return { namespace, name: node };
  }
  /** Opens a packet socket in a pod. */
  frames(pod: LabPod): FrameSocket {
    const words = ["ip", "-n", podNamespace(pod), "-o", "link", "show", "eth0"];
    const index = Number(/^\d+/.exec(this.lab.host(pod.node).run(words).stdout)?.[0]);
    const socket = new FrameSocket(this.targetOf(pod), index);
    this.#opened.push(socket);
    return socket;
  }

  /** Closes the sockets that attacks opened. */
  release(): void {
    for (const each of this.#opened.splice(0).reverse()) each[Symbol.dispose]();
  }
  [Symbol.dispose](): void {
    this.release();
  }

  nonce(): number {
    return this.#nonce++;
  }

  /**
   * Sends numbered packets from an attacker, and returns those that arrived at a pod of the neighbour or at a node itself.
   */
  async arrivals(
    from: LabPod,
    send: (socket: FrameSocket, numbered: (what: string) => number) => void,
  ): Promise<string[]> {
    const victims = this.scene.pods.filter(({ namespace }) => namespace === NEIGHBOUR);
    const places = [
      ...victims.map((pod) => ({ name: pod.name, socket: this.frames(pod) })),
      ...this.lab.plan.nodes.flatMap(({ name }) =>
        this.versions.flatMap((version) =>
          [17, 6].map((protocol) => {
            const socket = new ReceivedPackets(this.targetOfNode(name), version, protocol);
            this.#opened.push(socket);
            return { name, socket };
          }),
        ),
      ),
    ];
    const sent = new Map<number, string>();
    send(this.frames(from), (what) => {
      const nonce = this.nonce();
      sent.set(nonce, what);
      return nonce;
    });
    const arrived = new Set<string>();
    const deadlineMs = performance.now() + ARRIVAL_MS;
    do {
      await Bun.sleep(10);
      for (const { name, socket } of places)
        for (const nonce of socket.take()) {
          const what = sent.get(nonce);
          if (what !== undefined) arrived.add(`${what} arrived at ${name}`);
        }
    } while (performance.now() < deadlineMs);
    return [...arrived];
  }

  /** Checks that packets of a client still reach the database, and that none of them reaches the attacker. */
  async divertedTraffic(attacker: LabPod): Promise<string[]> {
    const client = this.pod(`${NEIGHBOUR}/${this.pick(["client", "remote"])}`);
    const [source, sink, thief] = [this.frames(client), this.frames(this.database), this.frames(attacker)];
    const wanted = new Map<number, 4 | 6>();
    for (const version of this.versions) {
      const [from, to] = [addressOf(client, version), addressOf(this.database, version)];
      if (from === undefined || to === undefined) continue;
      const nonce = this.nonce();
      wanted.set(nonce, version);
      source.send(toHost(udpTo(from, to, CHECK_PORT, nonce)));
    }
    const found: string[] = [];
    const deadlineMs = performance.now() + 2_000;
    while (wanted.size > 0 && performance.now() < deadlineMs) {
      await Bun.sleep(5);
      for (const nonce of thief.take())
        if (wanted.has(nonce)) found.push(`the attacker received IPv${wanted.get(nonce)}`);
      for (const nonce of sink.take()) wanted.delete(nonce);
    }
    for (const version of wanted.values()) found.push(`IPv${version} of ${client.name} does not reach the database`);
    return found;
  }

  /** Creates a pod as the tenant, and starts it as the kubelet of its node. */
  async startPod(pod: NewPod, annotations: Readonly<Record<string, string>> = {}): Promise<LabPod | Result> {
    const api = pod.namespace === TENANT ? this.tenant : this.kubelet;
    const { status, body } = await api.call("POST", `/api/v1/namespaces/${pod.namespace}/pods`, {
      metadata: {
        name: pod.name,
        labels: pod.labels,
        annotations: Object.fromEntries(Object.entries(annotations).map(([key, value]) => [`${PREFIX}/${key}`, value])),
      },
      spec: { nodeName: pod.node, containers: [{ name: "pod", image: "none" }] },
    });
    if (status >= 400) return refusal(`create pod ${pod.name}`, { status, body });
    const { uid } = (body as { readonly metadata: { readonly uid: string } }).metadata;
    try {
      const added = addPod(this.lab.folder, this.lab.options, this.lab.plan, pod, uid);
      await this.kubelet.patch(`${pathOf(pod)}/status`, {
        status: { phase: "Running", podIP: added.addresses[0], podIPs: added.addresses.map((ip) => ({ ip })) },
      });
      return added;
    } catch (error) {
      // Only this error is a rejection; the plugin can fail for other reasons too.
      const message = error instanceof Error ? error.message : String(error);
      const [reason] = /resource already exists/.exec(message) ?? [];
      if (reason === undefined) throw error;
      return { outcome: "refused", detail: reason };
    }
  }

  /** @param started the result of `startPod`; the pod object exists even if the pod was rejected */
  async stopPod(pod: NewPod, started: LabPod | Result): Promise<void> {
    if ("addresses" in started) deletePod(this.lab.folder, this.lab.options, this.lab.plan, started);
    await this.kubelet.call("DELETE", `${pathOf(pod)}?gracePeriodSeconds=0`);
  }

  /** Creates an object as the tenant, runs the check, and deletes the object. */
  async withObject(
    collection: string,
    object: { readonly metadata: { readonly name: string }; readonly [field: string]: unknown },
    check: () => Promise<Result>,
  ): Promise<Result> {
    const reply = await this.tenant.call("POST", collection, object);
    if (reply.status >= 400) return refusal(`create ${collection}/${object.metadata.name}`, reply);
    try {
      return await check();
    } finally {
      await this.tenant.call("DELETE", `${collection}/${object.metadata.name}`);
    }
  }
}

export const pathOf = ({ namespace, name }: Pick<LabPod, "namespace" | "name">): string =>
  `/api/v1/namespaces/${namespace}/pods/${name}`;

/** Returns an IP packet as a frame from a pod to its node. */
export const toHost = (packet: Uint8Array): Uint8Array =>
  frame(HOST_MAC, EVIL_MAC, (packet[0] ?? 0) >> 4 === 4 ? ETHERTYPE.ipv4 : ETHERTYPE.ipv6, packet);

export const udpTo = (source: IpAddress, destination: IpAddress, port: number, nonce: number): Uint8Array =>
  ipPacket({ source, destination, protocol: 17, sourcePort: 4000, destinationPort: port }, nonce);
