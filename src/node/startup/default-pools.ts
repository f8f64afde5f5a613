// Chooses the default IP pools of a new cluster: from the environment, from kubeadm, or a range unused on this host.
import { randomBytes, randomInt } from "node:crypto";
import type { Environment } from "../../datastore/index.ts";
import { type Cidr, cidrContains, type IpVersion, ipVersion, tryParseCidr } from "../../lib/ip/ip.ts";
import { API_VERSION, parseSelector, type Resource } from "../../model/index.ts";
import { FatalNodeError } from "../failure.ts";
import { type HostInterface, networksOf } from "./host-interfaces.ts";
import { flagOf } from "../settings.ts";

export interface PoolInputs {
  readonly env: Environment;
  readonly interfaces: readonly HostInterface[];
  /** From kubeadm's configuration. */
  readonly podSubnets: readonly Cidr[];
  /** Families that already have a pool. */
  readonly existing: ReadonlySet<IpVersion>;
  readonly ipv6InKernel: boolean;
}

const BLOCK_SIZES = { 4: { default: 26, min: 20, max: 32 }, 6: { default: 122, min: 116, max: 128 } } as const;

/**
 * Returns the pools to create.
 * @throws FatalNodeError if a variable is invalid
 */
export function defaultPools(inputs: PoolInputs): readonly Resource[] {
  const { env } = inputs;
  const cidrs = { 4: env["CALICO_IPV4POOL_CIDR"] ?? "", 6: env["CALICO_IPV6POOL_CIDR"] ?? "" };
  if ((env["NO_DEFAULT_POOLS"] ?? "").toLowerCase() === "true") {
    if (!namesNoPool(cidrs[4]) || !namesNoPool(cidrs[6]))
      throw new FatalNodeError(
        "NO_DEFAULT_POOLS is true, but CALICO_IPV4POOL_CIDR or CALICO_IPV6POOL_CIDR names a pool: unset one of them",
      );
    return [];
  }
  const pools = ([4, 6] as const).flatMap((version) => poolOf(version, cidrs[version], inputs) ?? []);
  return pools.filter(({ version }) => !inputs.existing.has(version)).map(({ pool }) => pool);
}

const isNone = (cidr: string): boolean => cidr.toLowerCase() === "none";
const namesNoPool = (cidr: string): boolean => cidr === "" || isNone(cidr);

function poolOf(
  version: IpVersion,
  text: string,
  inputs: PoolInputs,
): { version: IpVersion; pool: Resource } | undefined {
  const { env } = inputs;
  if (isNone(text)) return undefined;
  if (version === 6 && !(inputs.ipv6InKernel && flagOf(env, "FELIX_IPV6SUPPORT", true))) {
    if (text !== "") checkCidr(version, text);
    return undefined;
  }
  const prefix = `CALICO_IPV${version}POOL_`;
  const cidr =
    text === ""
      ? (inputs.podSubnets.find((c) => ipVersion(c) === version) ?? unusedRange(version, inputs))
      : checkCidr(version, text);
  const nodeSelector = env[`${prefix}NODE_SELECTOR`] || "all()";
  try {
    parseSelector(nodeSelector);
  } catch (error) {
    throw new FatalNodeError(
      `Invalid node selector '${nodeSelector}' for version ${version}: ${error instanceof Error ? error.message : String(error)}`,
      { cause: error },
    );
  }
  const natOutgoing = flagOf(env, `${prefix}NAT_OUTGOING`, version === 4);
  const disableBGPExport = flagOf(env, `${prefix}DISABLE_BGP_EXPORT`, false);
  const spec = {
    cidr,
    blockSize: blockSize(version, env[`${prefix}BLOCK_SIZE`]),
    ipipMode: version === 4 ? mode(`${prefix}IPIP`, env) : "Never",
    vxlanMode: mode(`${prefix}VXLAN`, env),
    nodeSelector,
    ...(natOutgoing && { natOutgoing }),
    ...(disableBGPExport && { disableBGPExport }),
  };
  return {
    version,
    pool: { apiVersion: API_VERSION, kind: "IPPool", metadata: { name: `default-ipv${version}-ippool` }, spec },
  };
}

function checkCidr(version: IpVersion, text: string): Cidr {
  const cidr = tryParseCidr(text);
  if (cidr === undefined || ipVersion(cidr) !== version)
    throw new FatalNodeError(
      `Invalid CIDR specified in CALICO_IPV${version}POOL_CIDR '${text}': want an IPv${version} range`,
    );
  return cidr;
}

function blockSize(version: IpVersion, text: string | undefined): number {
  const { default: defaultSize, min, max } = BLOCK_SIZES[version];
  if (text === undefined || text === "") return defaultSize;
  const size = /^\d{1,3}$/.test(text) ? Number(text) : Number.NaN;
  if (!(size >= min && size <= max))
    throw new FatalNodeError(`Invalid blocksize ${text} for version ${version}: want a number from ${min} to ${max}`);
  return size;
}

function mode(name: string, env: Environment): "Never" | "Always" | "CrossSubnet" {
  const word = env[name] ?? "";
  switch (word.toLowerCase()) {
    case "":
    case "off":
    case "never":
      return "Never";
    case "always":
      return "Always";
    case "crosssubnet":
    case "cross-subnet":
      return "CrossSubnet";
    default:
      throw new FatalNodeError(`Unrecognized mode specified in ${name} '${word}': want Never, Always or CrossSubnet`);
  }
}

const PREFERRED_RANGE = "192.168.0.0/16" as Cidr;

/** IPv4: a private range in which this host has no address. IPv6: a random unique local prefix (RFC 4193). */
function unusedRange(version: IpVersion, { interfaces }: PoolInputs): Cidr {
  if (version === 6) {
    // fd00::/16 is excluded, because manually assigned prefixes are often there.
    const hex = `fd${randomInt(1, 256).toString(16).padStart(2, "0")}${randomBytes(4).toString("hex")}`;
    return tryParseCidr(`${hex.slice(0, 4)}:${hex.slice(4, 8)}:${hex.slice(8, 12)}::/48`) ?? ("fd00::/48" as Cidr);
  }
  const own = interfaces.flatMap((iface) => networksOf(iface, 4)).map(({ address }) => address);
  const ranges = [PREFERRED_RANGE, ...Array.from({ length: 16 }, (_, i) => `172.${16 + i}.0.0/16` as Cidr)];
  return ranges.find((range) => !own.some((address) => cidrContains(range, address))) ?? PREFERRED_RANGE;
}
