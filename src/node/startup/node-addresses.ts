// Determines the node's BGP addresses from the settings, the Node resource and the host's interfaces.
import { type IpAddress, type IpNetwork, type IpVersion, ipVersion, tryParseNetwork } from "../../lib/ip/ip.ts";
import type { Logger } from "../../lib/log/log.ts";
import type { SpecOf } from "../../model/index.ts";
import { autodetect, type DetectionInputs, onHost } from "./autodetect.ts";
import { FatalNodeError } from "../failure.ts";
import { type HostInterface, isSkipped, networksOf } from "./host-interfaces.ts";
import type { NodeSettings } from "../settings.ts";

export type NodeSpec = SpecOf<"Node">;

export interface AddressInputs {
  readonly settings: Pick<NodeSettings, "backend" | "ip" | "autodetection">;
  readonly interfaces: readonly HostInterface[];
  readonly kubernetesAddresses?: readonly IpAddress[];
  readonly sourceTowards?: DetectionInputs["sourceTowards"];
  readonly log: Logger;
}

export interface AddressResult {
  readonly spec: NodeSpec;
  readonly changed: boolean;
}

/** No address was found. The caller clears the addresses that should have been autodetected, then fails. */
export class AddressFailure extends FatalNodeError {}

const FIELD = { 4: "ipv4Address", 6: "ipv6Address" } as const;

export async function configureAddresses(before: NodeSpec, inputs: AddressInputs): Promise<AddressResult> {
  const { settings } = inputs;
  if (settings.backend === "none") return { spec: before, changed: false };
  const four = await addressOf(4, before, inputs);
  const six = await addressOf(6, before, inputs);
  if (four === undefined && six === undefined)
    throw new AddressFailure(
      "no IPv4 or IPv6 addresses configured or detected, required for Calico networking: set IP, IP6 or the autodetection method",
    );
  const interfaces = interfaceList(inputs);
  const { interfaces: _, ...rest } = before;
  const spec: NodeSpec = {
    ...rest,
    bgp: { ...before.bgp, ...(four && { ipv4Address: four }), ...(six && { ipv6Address: six }) },
    ...(interfaces.length > 0 && { interfaces }),
  };
  const changed =
    (before.bgp?.ipv4Address ?? "") !== (four ?? "") ||
    (before.bgp?.ipv6Address ?? "") !== (six ?? "") ||
    JSON.stringify(before.interfaces ?? []) !== JSON.stringify(interfaces);
  return { spec, changed };
}

async function addressOf(version: IpVersion, spec: NodeSpec, inputs: AddressInputs): Promise<string | undefined> {
  const { settings, log, interfaces } = inputs;
  const stored = spec.bgp?.[FIELD[version]] || undefined;
  const setting = settings.ip[version];
  if (setting === "autodetect" || (version === 4 && setting === "" && stored === undefined)) {
    const found = await autodetect(settings.autodetection[version], { ...inputs, version });
    if (found !== undefined) return format(found);
    if (stored === undefined)
      throw new AddressFailure(
        `failed to autodetect an IPv${version} address: no interface of this host matches ${settings.autodetection[version] || "first-found"}`,
      );
    log.warn(`no IPv${version} address detected; keeping the address in the Node resource`, { address: stored });
    return warnIfForeign(stored, version, inputs);
  }
  if (setting === "" || setting === "none") return stored && warnIfForeign(stored, version, inputs);
  const network = tryParseNetwork(setting);
  if (network === undefined || ipVersion(network.address) !== version)
    throw new FatalNodeError(
      `environment does not contain a valid IPv${version} address or network: ${version === 4 ? "IP" : "IP6"}=${setting}`,
    );
  const hasLength = setting.includes("/");
  const resolved = !hasLength && version === 4 ? (onHost(interfaces, network.address, 4) ?? network) : network;
  return warnIfForeign(format(resolved), version, inputs);
}

/** Warns about an address that no interface has: possible behind NAT, but usually an error. */
function warnIfForeign(text: string, version: IpVersion, { interfaces, log }: AddressInputs): string {
  const network = tryParseNetwork(text);
  if (network !== undefined && onHost(interfaces, network.address, version) === undefined)
    log.warn("no interface of this host has the node's address", { address: text });
  return text;
}

const format = ({ address, length }: IpNetwork): string => `${address}/${length}`;

/** Returns the host's own interfaces, with their addresses of the families that are set to a value other than `none`. */
function interfaceList({ settings, interfaces }: AddressInputs): { name: string; addresses?: string[] }[] {
  const versions = ([4, 6] as const).filter((version) => !["", "none"].includes(settings.ip[version]));
  if (versions.length === 0) return [];
  return interfaces
    .filter(({ name }) => !isSkipped(name))
    .map((iface) => {
      const addresses = versions.flatMap((version) => networksOf(iface, version).map(({ address }) => String(address)));
      return { name: iface.name, ...(addresses.length > 0 && { addresses }) };
    })
    .sort((a, b) => (a.name < b.name ? -1 : 1));
}

/** Removes the addresses that should have been autodetected, and the BGP section if it is then empty. */
export function withoutDetected(spec: NodeSpec, ip: NodeSettings["ip"]): NodeSpec {
  const { bgp, ...rest } = spec;
  const { ipv4Address, ipv6Address, ...others } = bgp ?? {};
  const kept = {
    ...others,
    ...(ipv4Address && ip[4] !== "autodetect" && { ipv4Address }),
    ...(ipv6Address && ip[6] !== "autodetect" && { ipv6Address }),
  };
  return Object.keys(kept).length === 0 ? rest : { ...rest, bgp: kept };
}

export interface OtherNode {
  readonly name: string;
  readonly spec: NodeSpec;
}

/** Finds another node that has one of this node's addresses. */
export function findConflict(
  name: string,
  spec: NodeSpec,
  others: readonly OtherNode[],
): { readonly version: IpVersion; readonly address: IpAddress; readonly node: string } | undefined {
  for (const version of [4, 6] as const) {
    const address = addressIn(spec, version);
    if (address === undefined) continue;
    const other = others.find((node) => node.name !== name && addressIn(node.spec, version) === address);
    if (other !== undefined) return { version, address, node: other.name };
  }
  return undefined;
}

const addressIn = (spec: NodeSpec, version: IpVersion): IpAddress | undefined =>
  tryParseNetwork(spec.bgp?.[FIELD[version]] ?? "")?.address;
