// Encodes the owner of a workload's host interface as the interface's alias, which `ip link` shows. The CNI plugin sets
// it. CNI GC uses it to find interfaces that a killed ADD left behind, without access to a datastore. ADD and Felix use
// it to resolve conflicts between two workloads with the same interface name.

export interface InterfaceOwner {
  readonly network: string;
  readonly containerId: string;
  /** Set only in Kubernetes. */
  readonly pod?: { readonly namespace: string; readonly name: string };
  /** In place of `pod` if the alias would be too long: SHA-256 of `NAMESPACE/POD`. */
  readonly podHash?: string;
}

const FIRST_WORD = "calico";
const HASH_PREFIX = "sha256:";
/** The kernel's limit: IFALIASZ less the terminating zero. */
const MAX_BYTES = 255;

/**
 * Returns `calico NETWORK CONTAINER NAMESPACE/POD`, or `calico NETWORK CONTAINER sha256:HASH` if that is too long;
 * undefined if the network and the container alone are too long.
 */
export function interfaceAlias({ network, containerId, pod }: Omit<InterfaceOwner, "podHash">): string | undefined {
  const container = `${FIRST_WORD} ${network} ${containerId}`;
  const aliases = [container];
  if (pod !== undefined) {
    const name = `${pod.namespace}/${pod.name}`;
    aliases.splice(0, 1, `${container} ${name}`, `${container} ${HASH_PREFIX}${hashOf(name)}`);
  }
  return aliases.find((alias) => Buffer.byteLength(alias) <= MAX_BYTES);
}

/** Returns undefined for the alias of an interface that the CNI plugin of calico-ts did not create. */
export function parseInterfaceAlias(alias: string | undefined): InterfaceOwner | undefined {
  const [first, network = "", containerId = "", pod, ...more] = (alias ?? "").split(" ");
  if (first !== FIRST_WORD || network === "" || containerId === "" || more.length > 0) return undefined;
  if (pod === undefined) return { network, containerId };
  if (pod.startsWith(HASH_PREFIX)) return { network, containerId, podHash: pod.slice(HASH_PREFIX.length) };
  const slash = pod.indexOf("/");
  if (slash < 1 || slash === pod.length - 1) return undefined;
  return { network, containerId, pod: { namespace: pod.slice(0, slash), name: pod.slice(slash + 1) } };
}

/**
 * Whether the workload owns the interface.
 * @param workload `NAMESPACE/POD` in Kubernetes, `NAMESPACE/CONTAINER` of other runtimes, as in the name of its endpoint
 */
export function ownsInterface(owner: InterfaceOwner, orchestrator: string, workload: string): boolean {
  const { pod, podHash, containerId } = owner;
  if (pod !== undefined) return orchestrator === "k8s" && workload === `${pod.namespace}/${pod.name}`;
  if (podHash !== undefined) return orchestrator === "k8s" && podHash === hashOf(workload);
  return orchestrator === "cni" && workload.slice(workload.indexOf("/") + 1) === containerId;
}

const hashOf = (name: string): string => new Bun.CryptoHasher("sha256").update(name).digest("hex");
