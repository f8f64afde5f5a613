// Who a word on the command line means: an address, a pod, a host endpoint or a node; and the addresses two ends use
// with one another.
import { type IpAddress, type IpVersion, ipVersion, tryParseAddress } from "../../lib/ip/ip.ts";
import { type Party, type PolicyState, partyAt } from "../../policy/index.ts";
import { Failure } from "../command-line/failure.ts";

export interface End {
  readonly party: Party;
  readonly addresses: readonly IpAddress[];
}

/** @param namespace of pods named without one */
export function findEnd(state: PolicyState, word: string, namespace: string): End {
  const address = tryParseAddress(word);
  if (address !== undefined) return { party: partyAt(state, address), addresses: [address] };
  const [, mark = "", name = ""] = /^(?:(pod|hep|node):)?(.+)$/.exec(word) ?? [];
  const found =
    (mark === "" || mark === "pod" ? findPod(state, name, namespace) : undefined) ??
    (mark === "" || mark === "hep" ? findHostEndpoint(state, name) : undefined) ??
    (mark === "" || mark === "node" ? findNode(state, name) : undefined);
  if (found !== undefined) return found;
  const where = name.includes("/") ? name : `${namespace}/${name}`;
  throw new Failure(
    `${word} is no address, no workload (${where}), no host endpoint and no node here: want 10.0.0.1, NAMESPACE/POD, hep:NAME or node:NAME`,
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

/** One address each, of a family both have: IPv4 first, unless told. */
export function pairAddresses(
  source: End,
  destination: End,
  wanted: IpVersion | undefined,
): { readonly source: IpAddress; readonly destination: IpAddress } {
  const first = (end: End, version: IpVersion) => end.addresses.find((address) => ipVersion(address) === version);
  for (const version of wanted === undefined ? ([4, 6] as const) : [wanted]) {
    const [from, to] = [first(source, version), first(destination, version)];
    if (from !== undefined && to !== undefined) return { source: from, destination: to };
  }
  const family = wanted === undefined ? "of the same family" : `of IPv${wanted}`;
  throw new Failure(`the two ends have no addresses ${family}`, { exitCode: 2 });
}
