// Which of the host's addresses is the node's. When several would do, the log says which lost and why: a node that
// carries the address of the wrong card is the classic fault.
import { createSocket } from "node:dgram";
import { lookup } from "node:dns/promises";
import {
  type Cidr,
  cidrContains,
  type IpAddress,
  type IpNetwork,
  type IpVersion,
  tryParseAddress,
  tryParseCidr,
} from "../../lib/ip/ip.ts";
import type { Logger } from "../../lib/log/log.ts";
import { NodeFailure } from "../failure.ts";
import { type HostInterface, isGlobalUnicast, isSkipped, networksOf } from "./host-interfaces.ts";

export interface DetectionInputs {
  readonly version: IpVersion;
  readonly interfaces: readonly HostInterface[];
  /** InternalIP addresses of the Kubernetes node; undefined when there is none. */
  readonly kubernetesAddresses?: readonly IpAddress[];
  /** From which address the host would send to a destination. */
  readonly sourceTowards?: (host: string, version: IpVersion) => Promise<IpAddress | undefined>;
  readonly log: Logger;
}

interface Candidate extends IpNetwork {
  readonly interface: string;
}

/** @throws NodeFailure when there is no such method; undefined when it finds nothing */
export async function autodetect(method: string, inputs: DetectionInputs): Promise<IpNetwork | undefined> {
  // An argument that is empty is one: it means every interface, none, or a host that cannot be reached.
  const [, word = "", argument = ""] = /^([^=]*)=(.*)$/s.exec(method) ?? [];
  if (method === "" || method === "first-found")
    return firstOf(inputs, (name) => !isSkipped(name), "it is an interface of the host's own");
  if (word === "interface") {
    const wanted = patterns(argument, method);
    return firstOf(inputs, (name) => wanted.some((pattern) => pattern.test(name)), `it matches ${argument}`);
  }
  if (word === "skip-interface") {
    const unwanted = patterns(argument, method);
    const isWanted = (name: string) => !isSkipped(name) && !unwanted.some((pattern) => pattern.test(name));
    return firstOf(inputs, isWanted, `it is not skipped by ${argument}`);
  }
  if (word === "cidr") return inCidrs(inputs, argument);
  if (word === "can-reach") return argument === "" ? undefined : towards(inputs, argument);
  if (method.startsWith("kubernetes-internal-ip")) return kubernetesAddress(inputs);
  throw new NodeFailure(
    `Invalid IP autodetection method: ${method}: want first-found, interface=REGEX, skip-interface=REGEX, cidr=CIDR, can-reach=HOST or kubernetes-internal-ip`,
  );
}

function patterns(list: string, method: string): readonly RegExp[] {
  return list.split(/\s*,\s*/).map((text) => {
    try {
      return new RegExp(text);
    } catch (error) {
      throw new NodeFailure(`Invalid IP autodetection method: ${method}: ${JSON.stringify(text)} is no pattern`, {
        cause: error,
      });
    }
  });
}

/** The interface added last wins, and of its addresses the first. */
function firstOf(inputs: DetectionInputs, isWanted: (name: string) => boolean, why: string): IpNetwork | undefined {
  const { version, interfaces, log } = inputs;
  const candidates = interfaces
    .filter(({ name }) => isWanted(name))
    .toReversed()
    .flatMap((iface) => usable(iface, version));
  return choose(candidates, why, log, version);
}

function inCidrs(inputs: DetectionInputs, argument: string): IpNetwork | undefined {
  const cidrs: Cidr[] = [];
  for (const text of argument.split(/\s*,\s*/)) {
    const cidr = tryParseCidr(text);
    if (cidr === undefined) {
      inputs.log.error("autodetection by CIDR: no CIDR", { text });
      return undefined;
    }
    cidrs.push(cidr);
  }
  const candidates = inputs.interfaces
    .toReversed()
    .flatMap((iface) => usable(iface, inputs.version))
    .filter(({ address }) => cidrs.some((cidr) => cidrContains(cidr, address)));
  return choose(candidates, `it lies in ${argument}`, inputs.log, inputs.version);
}

/** @param candidates the best first: of several interfaces the one added last, of its addresses the first */
function choose(candidates: readonly Candidate[], why: string, log: Logger, version: IpVersion): IpNetwork | undefined {
  const [first, ...others] = candidates;
  if (first === undefined) return undefined;
  const fields = { address: textOf(first), interface: first.interface };
  const reason = (other: Candidate) =>
    other.interface === first.interface ? "a later address of the same interface" : `added before ${first.interface}`;
  if (others.length === 0) log.info(`using autodetected IPv${version} address`, fields);
  else
    log.warn(`several addresses could be the node's for IPv${version}; name one with IP or the autodetection method`, {
      ...fields,
      because: `${why}; of several interfaces the one added last wins, with its first address`,
      lost: others.map((other) => `${other.interface} ${textOf(other)} (${reason(other)})`).join(", "),
    });
  return { address: first.address, length: first.length };
}

const textOf = ({ address, length }: IpNetwork): string => `${address}/${length}`;

async function towards(inputs: DetectionInputs, destination: string): Promise<IpNetwork | undefined> {
  const source = await (inputs.sourceTowards ?? sourceTowards)(destination, inputs.version);
  if (source === undefined) {
    inputs.log.error("autodetection by can-reach: there is no name, or no route, to it", { destination });
    return undefined;
  }
  const found = onHost(inputs.interfaces, source, inputs.version);
  if (found === undefined) inputs.log.error("the address towards a destination is on no interface", { source });
  else
    inputs.log.info(`using autodetected IPv${inputs.version} address`, {
      address: textOf(found),
      towards: destination,
    });
  return found;
}

function kubernetesAddress(inputs: DetectionInputs): IpNetwork | undefined {
  const { kubernetesAddresses, version, interfaces, log } = inputs;
  const address = kubernetesAddresses?.find((candidate) => (candidate.includes(":") ? 6 : 4) === version);
  if (address === undefined) {
    if (kubernetesAddresses === undefined) log.error("there is no Kubernetes here to ask for the node's InternalIP");
    else log.error(`the Kubernetes node has no IPv${version} InternalIP`);
    return undefined;
  }
  const found = onHost(interfaces, address, version);
  if (found === undefined) log.error("the Kubernetes node's InternalIP is on no interface of this host", { address });
  return found;
}

/** The network an address of this host lies in. */
export function onHost(
  interfaces: readonly HostInterface[],
  address: IpAddress,
  version: IpVersion,
): IpNetwork | undefined {
  return interfaces.flatMap((iface) => networksOf(iface, version)).find((network) => network.address === address);
}

const usable = (iface: HostInterface, version: IpVersion): readonly Candidate[] =>
  networksOf(iface, version)
    .filter(({ address }) => isGlobalUnicast(address))
    .map((network) => ({ ...network, interface: iface.name }));

/** Connecting a datagram socket sends nothing, but makes the kernel choose a route and with it a source. */
async function sourceTowards(host: string, version: IpVersion): Promise<IpAddress | undefined> {
  try {
    const { address } = await lookup(host, { family: version });
    const socket = createSocket(version === 4 ? "udp4" : "udp6");
    try {
      await new Promise<void>((resolve, reject) => {
        socket.once("error", reject);
        socket.connect(80, address, resolve);
      });
      return tryParseAddress(socket.address().address);
    } finally {
      socket.close();
    }
  } catch {
    return undefined;
  }
}
