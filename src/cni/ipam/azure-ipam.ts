// The IPAM plugin `azure-vnet-ipam` releases an address only when it is told the address and its subnet, and gives one of
// the right subnet only when it is told that. So what it answers is kept on the node, one folder per network:
//
//   /var/run/calico/azure/networks/NETWORK/network.json        the subnet, for every later call
//   /var/run/calico/azure/networks/NETWORK/CONTAINER-INTERFACE  the addresses, for this container's DEL
//
// Names and fields are the original's: either of us finds what the other stored.
import { mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type IpNetwork, maskCidr } from "../../lib/ip/ip.ts";
import { CniError, INTERNAL, INVALID_CONFIG } from "../error.ts";
import type { CniRequest, JsonObject } from "../request/request.ts";
import type { CniResult } from "../request/result.ts";

const AZURE_IPAM = "azure-vnet-ipam";
const NETWORKS = "/var/run/calico/azure/networks";

/** What is known of one container's attachment to one network. */
export class AzureState {
  readonly #config: JsonObject;
  readonly #folder: string;
  readonly #endpointFile: string;
  readonly #endpoint: { readonly Network: string; readonly ContainerID: string; readonly Interface: string };

  /** @throws CniError when a name would lead out of the folder */
  constructor(network: string, request: Pick<CniRequest, "config" | "containerId" | "ifName">, networks = NETWORKS) {
    const { config, containerId, ifName } = request;
    this.#config = config;
    this.#folder = join(networks, fileName(network));
    this.#endpointFile = join(this.#folder, fileName(`${containerId}-${ifName}`));
    this.#endpoint = { Network: network, ContainerID: containerId, Interface: ifName };
  }

  /** With the subnet of the addresses before. */
  configForAdd(): JsonObject {
    const subnet = this.#subnet();
    return subnet === undefined ? this.#config : withIpam(this.#config, { subnet });
  }

  /** With what the container was given; nothing when it was given nothing. The plugin takes one address back. */
  configForDel(): JsonObject | undefined {
    const [first] = readList(this.#endpointFile, "Addresses");
    if (first === undefined) return undefined;
    const subnet = this.#subnet();
    return subnet === undefined ? this.#config : withIpam(this.#config, { ipAddress: first.split("/")[0], subnet });
  }

  /** For taking back at once what was just given. */
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

  /** The address is free: nothing of it need be known. */
  forget(): void {
    rmSync(this.#endpointFile, { force: true });
  }

  get #networkFile(): string {
    return join(this.#folder, "network.json");
  }

  #subnet(): string | undefined {
    return readList(this.#networkFile, "Subnets")[0];
  }

  /** Pods of one network come at once, each in a process of its own. */
  #replace(path: string, content: JsonObject): void {
    const draft = join(this.#folder, `.${process.pid}`);
    writeFileSync(draft, JSON.stringify(content), { mode: 0o600 });
    renameSync(draft, path);
  }
}

const subnetOf = ({ address, length }: IpNetwork): string => maskCidr(address, length);

function fileName(text: string): string {
  if (!/^[^/\0]{1,255}$/.test(text) || text === "." || text === "..")
    throw new CniError(
      INVALID_CONFIG,
      `${AZURE_IPAM} keeps its state in a file by this name, which cannot be: ${text}`,
    );
  return text;
}

/** A list of texts in a file; empty where there is no file. */
function readList(path: string, field: string): readonly string[] {
  let text: string;
  try {
    text = readFileSync(path, "utf8");
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return [];
    throw new CniError(INTERNAL, `cannot read what ${AZURE_IPAM} answered before: ${(error as Error).message}`);
  }
  try {
    const list = (JSON.parse(text) as JsonObject | null)?.[field] ?? [];
    if (Array.isArray(list) && list.every((item) => typeof item === "string")) return list;
  } catch {
    // said below
  }
  throw new CniError(
    INTERNAL,
    `${path} does not say what ${AZURE_IPAM} answered before: want a list of texts as ${JSON.stringify(field)}`,
    "remove the file; an address it held must be released by hand",
  );
}

/** The configuration with more in its `ipam` section, by whatever case that is written. */
function withIpam(config: JsonObject, more: JsonObject): JsonObject {
  const key = Object.keys(config).find((name) => name.toLowerCase() === "ipam") ?? "ipam";
  return { ...config, [key]: { ...(config[key] as JsonObject | undefined), ...more } };
}
