// Detects the node's address with one of the autodetection methods. If several addresses match, the log shows the selected
// one, the others, and why, because selecting the address of the wrong interface is a frequent error.
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
import { FatalNodeError } from "../failure.ts";
import { type HostInterface, isGlobalUnicast, isSkipped, networksOf } from "./host-interfaces.ts";

export interface DetectionInputs {
  readonly version: IpVersion;
  readonly interfaces: readonly HostInterface[];
  /** InternalIP addresses of the Kubernetes node; undefined without Kubernetes. */
  readonly kubernetesAddresses?: readonly IpAddress[];
  /** Returns the source address with which the host sends to a destination. */
  readonly sourceTowards?: (host: string, version: IpVersion) => Promise<IpAddress | undefined>;
  readonly log: Logger;
}

interface Candidate extends IpNetwork {
  readonly interface: string;
}

/**
 * @returns undefined if no address matches
 * @throws FatalNodeError if the method is unknown
 */
export async function autodetect(method: string, inputs: DetectionInputs): Promise<IpNetwork | undefined> {
  // An empty argument is valid: `interface=` matches all interfaces, `skip-interface=` and `can-reach=` match none.
  const [, word = "", argument = ""] = /^([^=]*)=(.*)$/s.exec(method) ?? [];
  if (method === "" || method === "first-found")
    return firstOf(
      inputs,
      (name) => !isSkipped(name),
      "it is not an interface of a container, tunnel or virtual machine",
    );
  if (word === "interface") {
    const included = patterns(argument, method);
    return firstOf(inputs, (name) => included.some((pattern) => pattern.test(name)), `it matches ${argument}`);
  }
  if (word === "skip-interface") {
    const excluded = patterns(argument, method);
    const isIncluded = (name: string) => !isSkipped(name) && !excluded.some((pattern) => pattern.test(name));
    return firstOf(inputs, isIncluded, `it is not skipped by ${argument}`);
  }
  if (word === "cidr") return inCidrs(inputs, argument);
  if (word === "can-reach") return argument === "" ? undefined : viaDestination(inputs, argument);
  if (method.startsWith("kubernetes-internal-ip")) return kubernetesAddress(inputs);
  throw new FatalNodeError(
    `Invalid IP autodetection method: ${method}: want first-found, interface=REGEX, skip-interface=REGEX, cidr=CIDR, can-reach=HOST or kubernetes-internal-ip`,
  );
}

function patterns(list: string, method: string): readonly RegExp[] {
  return list.split(/\s*,\s*/).map((text) => {
    try {
      return new RegExp(text);
    } catch (error) {
      throw new FatalNodeError(
        `Invalid IP autodetection method: ${method}: ${JSON.stringify(text)} is not a regular expression`,
        {
          cause: error,
        },
      );
    }
  });
}

/** Prefers the interface added last, and its first address. */
function firstOf(inputs: DetectionInputs, isIncluded: (name: string) => boolean, why: string): IpNetwork | undefined {
  const { version, interfaces, log } = inputs;
  const candidates = interfaces
    .filter(({ name }) => isIncluded(name))
    .toReversed()
    .flatMap((iface) => usable(iface, version));
  return choose(candidates, why, log, version);
}

function inCidrs(inputs: DetectionInputs, argument: string): IpNetwork | undefined {
  const cidrs: Cidr[] = [];
  for (const text of argument.split(/\s*,\s*/)) {
    const cidr = tryParseCidr(text);
    if (cidr === undefined) {
      inputs.log.error("IP autodetection method cidr: invalid CIDR", { text });
      return undefined;
    }
    cidrs.push(cidr);
  }
  const candidates = inputs.interfaces
    .toReversed()
    .flatMap((iface) => usable(iface, inputs.version))
    .filter(({ address }) => cidrs.some((cidr) => cidrContains(cidr, address)));
  return choose(candidates, `it is inside ${argument}`, inputs.log, inputs.version);
}

/** @param candidates in order of preference */
function choose(candidates: readonly Candidate[], why: string, log: Logger, version: IpVersion): IpNetwork | undefined {
  const [first, ...others] = candidates;
  if (first === undefined) return undefined;
  const fields = { address: textOf(first), interface: first.interface };
  const reason = (other: Candidate) =>
    other.interface === first.interface ? "a later address of the same interface" : `added before ${first.interface}`;
  if (others.length === 0) log.info(`using autodetected IPv${version} address`, fields);
  else
    log.warn(
      `several IPv${version} addresses match; select one with ${version === 4 ? "IP" : "IP6"} or the autodetection method`,
      {
        ...fields,
        because: `${why}; the interface added last is preferred, and its first address`,
        lost: others.map((other) => `${other.interface} ${textOf(other)} (${reason(other)})`).join(", "),
      },
    );
  return { address: first.address, length: first.length };
}

const textOf = ({ address, length }: IpNetwork): string => `${address}/${length}`;

async function viaDestination(inputs: DetectionInputs, destination: string): Promise<IpNetwork | undefined> {
  const source = await (inputs.sourceTowards ?? sourceTowards)(destination, inputs.version);
  if (source === undefined) {
    inputs.log.error("IP autodetection method can-reach: cannot resolve the destination, or no route to it", {
      destination,
    });
    return undefined;
  }
  const found = onHost(inputs.interfaces, source, inputs.version);
  if (found === undefined)
    inputs.log.error("IP autodetection method can-reach: no interface has the source address", { source });
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
    if (kubernetesAddresses === undefined)
      log.error("IP autodetection method kubernetes-internal-ip: no Kubernetes API server configured");
    else
      log.error(`IP autodetection method kubernetes-internal-ip: the Kubernetes node has no IPv${version} InternalIP`);
    return undefined;
  }
  const found = onHost(interfaces, address, version);
  if (found === undefined) log.error("no interface of this host has the Kubernetes node's InternalIP", { address });
  return found;
}

/** Returns the address with its prefix length, if an interface of this host has it. */
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

/** Connecting a UDP socket sends no packet, but makes the kernel select a route and its source address. */
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
