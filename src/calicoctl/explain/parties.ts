// Finds the endpoint that an argument of explain names (an address, a pod, a host endpoint or a node), and selects the
// addresses that the two ends of the connection use.
import { type IpAddress, type IpVersion, ipVersion, tryParseAddress } from "../../lib/ip/ip.ts";
import { type Party, type PolicyState, partyAt } from "../../policy/index.ts";
import { Failure } from "../command-line/failure.ts";

export interface End {
  readonly party: Party;
  readonly addresses: readonly IpAddress[];
}

/** @param namespace the namespace of pods that are named without one */
export function findEnd(state: PolicyState, word: string, namespace: string): End {
  const address = tryParseAddress(word);
  if (address !== undefined) return { party: partyAt(state, address), addresses: [address] };
  const [, prefix = "", name = ""] = /^(?:(pod|hep|node):)?(.+)$/.exec(word) ?? [];
  const found =
    (prefix === "" || prefix === "pod" ? findPod(state, name, namespace) : undefined) ??
    (prefix === "" || prefix === "hep" ? findHostEndpoint(state, name) : undefined) ??
    (prefix === "" || prefix === "node" ? findNode(state, name) : undefined);
  if (found !== undefined) return found;
  const where = name.includes("/") ? name : `${namespace}/${name}`;
  throw new Failure(
    `${word} not found: it is not an address, and there is no workload ${where}, host endpoint or node of that name; want 10.0.0.1, NAMESPACE/POD, hep:NAME or node:NAME`,
    { exitCode: 2 },
  );
}

function findPod(state: PolicyState, name: string, namespace: string): End | undefined {
  const workload = name.includes("/") ? name : `${namespace}/${name}`;
  const found = state.workloads.find(({ key }) => key.workload === workload);
  if (found === undefined) return undefined;
  const nets = [...found.value.ipv4Nets, ...found.value.ipv6Nets];
  return {
    party: { kind: "workload", workload: found },
    addresses: nets.map((net) => net.slice(0, net.indexOf("/")) as IpAddress),
  };
}

function findHostEndpoint(state: PolicyState, name: string): End | undefined {
  const found = state.hosts.find(({ key }) => key.endpoint === name);
  if (found === undefined) return undefined;
  const { key, value } = found;
  const expected = [...value.expectedIpv4Addrs, ...value.expectedIpv6Addrs];
  const isNamed = value.name !== "" && value.name !== "*";
  return {
    party: { kind: "host", host: key.host, ...(isNamed ? { interface: value.name } : {}) },
    addresses: expected.length > 0 ? expected : state.addressesOf(key.host),
  };
}

function findNode(state: PolicyState, name: string): End | undefined {
  const addresses = state.addressesOf(name);
  return addresses.length === 0 ? undefined : { party: { kind: "host", host: name }, addresses };
}

/** Selects one address of each end, of an IP version that both have: the requested one, or else IPv4 before IPv6. */
export function pairAddresses(
  source: End,
  destination: End,
  requested: IpVersion | undefined,
): { readonly source: IpAddress; readonly destination: IpAddress } {
  const first = (end: End, version: IpVersion) => end.addresses.find((address) => ipVersion(address) === version);
  for (const version of requested === undefined ? ([4, 6] as const) : [requested]) {
    const [from, to] = [first(source, version), first(destination, version)];
    if (from !== undefined && to !== undefined) return { source: from, destination: to };
  }
  const versions = requested === undefined ? "addresses of the same IP version" : `IPv${requested} addresses`;
  throw new Failure(`source and destination do not both have ${versions}`, { exitCode: 2 });
}
