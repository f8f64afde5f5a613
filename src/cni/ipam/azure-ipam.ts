// Stores the state that the IPAM plugin `azure-vnet-ipam` needs in later calls. The plugin assigns from the right subnet only if
// the configuration contains the subnet, and releases an address only if the configuration contains address and subnet. The
// state is stored on the node, in one folder per network:
//
//   /var/run/calico/azure/networks/NETWORK/network.json        the subnet, for every later call
//   /var/run/calico/azure/networks/NETWORK/CONTAINER-INTERFACE  the addresses, for this container's DEL
//
// Names and fields are the same as in Calico, so that Calico and calico-ts can read each other's files.
import { mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type IpNetwork, maskCidr } from "../../lib/ip/ip.ts";
import { CniError, INTERNAL, INVALID_CONFIG } from "../error.ts";
import type { CniRequest, JsonObject } from "../request/request.ts";
import type { CniResult } from "../request/result.ts";

const AZURE_IPAM = "azure-vnet-ipam";
const NETWORKS = "/var/run/calico/azure/networks";

/** The stored state of one container's attachment to one network. */
export class AzureState {
  readonly #config: JsonObject;
  readonly #folder: string;
  readonly #endpointFile: string;
  readonly #endpoint: { readonly Network: string; readonly ContainerID: string; readonly Interface: string };

  /** @throws CniError if a name cannot be a file name */
  constructor(network: string, request: Pick<CniRequest, "config" | "containerId" | "ifName">, networks = NETWORKS) {
    const { config, containerId, ifName } = request;
    this.#config = config;
    this.#folder = join(networks, fileName(network));
    this.#endpointFile = join(this.#folder, fileName(`${containerId}-${ifName}`));
    this.#endpoint = { Network: network, ContainerID: containerId, Interface: ifName };
  }

  /** Returns the configuration with the stored subnet, if there is one. */
  configForAdd(): JsonObject {
    const subnet = this.#subnet();
    return subnet === undefined ? this.#config : withIpam(this.#config, { subnet });
  }

  /** Returns the configuration with the container's stored address; undefined if none is stored. The plugin releases one address. */
  configForDel(): JsonObject | undefined {
    const [first] = readList(this.#endpointFile, "Addresses");
    if (first === undefined) return undefined;
    const subnet = this.#subnet();
    return subnet === undefined ? this.#config : withIpam(this.#config, { ipAddress: first.split("/")[0], subnet });
  }

  /** Returns the configuration that releases an address which was not stored. */
  configFor({ ips: [first] }: CniResult): JsonObject {
    if (first === undefined) return this.#config;
    return withIpam(this.#config, { ipAddress: first.address.address, subnet: subnetOf(first.address) });
  }

  store({ ips }: CniResult): void {
    const [first] = ips;
    if (first === undefined) return;
    mkdirSync(this.#folder, { recursive: true });
    const subnet = subnetOf(first.address);
    if (this.#subnet() !== subnet)
      this.#replace(this.#networkFile, { Name: this.#endpoint.Network, Subnets: [subnet] });
    this.#replace(this.#endpointFile, { ...this.#endpoint, Addresses: ips.map((ip) => ip.address.address) });
  }

  /** Deletes the container's state after its address was released. */
  delete(): void {
    rmSync(this.#endpointFile, { force: true });
  }

  get #networkFile(): string {
    return join(this.#folder, "network.json");
  }

  #subnet(): string | undefined {
    return readList(this.#networkFile, "Subnets")[0];
  }

  /** Replaces the file atomically, because plugin processes for other pods use the network's folder at the same time. */
  #replace(path: string, content: JsonObject): void {
    const draft = join(this.#folder, `.${process.pid}`);
    writeFileSync(draft, JSON.stringify(content), { mode: 0o600 });
    renameSync(draft, path);
  }
}

const subnetOf = ({ address, length }: IpNetwork): string => maskCidr(address, length);

function fileName(text: string): string {
  if (!/^[^/\0]{1,255}$/.test(text) || text === "." || text === "..")
    throw new CniError(INVALID_CONFIG, `the state of ${AZURE_IPAM} cannot be stored: not a valid file name: ${text}`);
  return text;
}

/** Reads a list of strings from a file; empty if the file does not exist. */
function readList(path: string, field: string): readonly string[] {
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return [];
    throw new CniError(INTERNAL, `cannot read the stored state of ${AZURE_IPAM}: ${(error as Error).message}`);
  }
  try {
    const list = (JSON.parse(text) as JsonObject | null)?.[field] ?? [];
    if (Array.isArray(list) && list.every((item) => typeof item === "string")) return list;
  } catch {
    // reported below
  }
  throw new CniError(
    INTERNAL,
    `${path} is not a valid state file of ${AZURE_IPAM}: want a list of strings in ${JSON.stringify(field)}`,
    "delete the file; if it contained an address, release the address manually",
  );
}

/** Returns the configuration with fields added to its `ipam` section. The key is matched without regard to case. */
function withIpam(config: JsonObject, more: JsonObject): JsonObject {
  const key = Object.keys(config).find((name) => name.toLowerCase() === "ipam") ?? "ipam";
  return { ...config, [key]: { ...(config[key] as JsonObject | undefined), ...more } };
}
