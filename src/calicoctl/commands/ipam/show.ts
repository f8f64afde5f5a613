// Implements `calicoctl ipam show`, which prints the usage of pools and blocks, one address, borrowed addresses, or settings.
import type { Datastore } from "../../../datastore/index.ts";
import {
  type Allocation,
  InCooldown,
  Ipam,
  NotAssigned,
  readAllocations,
  type Utilization,
} from "../../../ipam/index.ts";
import { type IpAddress, tryParseAddress } from "../../../lib/ip/ip.ts";
import type { Labels } from "../../../model/index.ts";
import { openChecked } from "../../resources/client.ts";
import type { Call } from "../../table/flags.ts";
import type { showGrammar } from "../../table/ipam.ts";
import { Failure } from "../../command-line/failure.ts";
import { fiveDigits, withPercentage } from "../../output/amounts.ts";
import { formatBoxTable } from "../../../lib/terminal/table.ts";
import { toJson } from "../../output/json.ts";

export async function run(call: Call<typeof showGrammar>): Promise<number> {
  const { flags, io } = call;
  const text = flags.ip;
  const address = text === undefined ? undefined : parseIpFlag(text);
  const isJson = flags.output === "json";
  await using store = await openChecked(call);
  const ipam = new Ipam({ datastore: store.datastore });
  if (isJson) {
    io.out(toJson(await asData(call, ipam, store.datastore, address)));
    return 0;
  }
  if (address !== undefined) io.out(await describeAddress(ipam, address));
  else if (flags["show-blocks"]) io.out(await describePools(ipam, true));
  else if (flags["show-borrowed"]) io.out(describeBorrowed(await readAllocations(store.datastore)));
  else if (flags["show-configuration"]) io.out(await describeConfiguration(ipam));
  else io.out(await describePools(ipam, false));
  return 0;
}

/** Returns the data of each mode for JSON. */
async function asData(
  call: Call<typeof showGrammar>,
  ipam: Ipam,
  datastore: Datastore,
  address: IpAddress | undefined,
): Promise<object> {
  if (address !== undefined) return addressData(ipam, address);
  if (call.flags["show-configuration"]) return ipam.config();
  if (call.flags["show-borrowed"]) return { borrowed: borrowed(await readAllocations(datastore)).rows };
  const { pools, orphans } = await ipam.utilization();
  if (call.flags["show-blocks"]) return { pools, orphans };
  return { pools: pools.map((pool) => ({ ...pool, blocks: undefined })) };
}

async function addressData(ipam: Ipam, address: IpAddress): Promise<object> {
  try {
    const { handleId, attributes, alternateAttributes } = await ipam.allocationOf(address);
    return { address, inUse: true, handleId, attributes, alternateAttributes };
  } catch (error) {
    if (error instanceof NotAssigned) return { address, inUse: false };
    if (error instanceof InCooldown) return { address, inUse: false, coolsDownSince: error.releasedAt };
    throw error;
  }
}

/** @throws Failure that is printed on standard output, as in Calico */
export function parseIpFlag(text: string): IpAddress {
  const address = tryParseAddress(text);
  if (address === undefined)
    throw new Failure(`Error executing command: invalid IP address specified: ${text}`, { stream: "out" });
  return address;
}

async function describePools(ipam: Ipam, withBlocks: boolean): Promise<string> {
  const { pools, orphans } = await ipam.utilization();
  const row = (grouping: string, { cidr, capacity, inUse, reserved, available }: Utilization) => [
    grouping,
    cidr,
    fiveDigits(capacity),
    withPercentage(inUse, capacity),
    withPercentage(reserved, capacity),
    withPercentage(available, capacity),
  ];
  const blocks = (list: readonly Utilization[]) => (withBlocks ? list.map((block) => row("Block", block)) : []);
  const right = "right" as const;
  return formatBoxTable(
    [
      { title: "GROUPING" },
      { title: "CIDR" },
      { title: "IPS TOTAL", align: right },
      { title: "IPS IN USE", align: right },
      { title: "IPS RESERVED", align: right },
      { title: "IPS FREE", align: right },
    ],
    [...pools.flatMap((pool) => [row("IP Pool", pool), ...blocks(pool.blocks)]), ...blocks(orphans)],
  );
}

async function describeAddress(ipam: Ipam, address: IpAddress): Promise<string> {
  let allocation: Allocation;
  try {
    allocation = await ipam.allocationOf(address);
  } catch (error) {
    if (error instanceof NotAssigned) return `${address} is not assigned\n`;
    if (error instanceof InCooldown)
      return `${address} is not assigned: it was released at ${error.releasedAt} and is in its cooldown\n`;
    throw error;
  }
  const { handleId, attributes, alternateAttributes } = allocation;
  const section = (title: string, labels: Labels | undefined) => {
    const entries = Object.entries(labels ?? {}).sort(([a], [b]) => (a < b ? -1 : 1));
    return entries.length === 0 ? "" : `${title}:\n${entries.map(([key, value]) => `  ${key}: ${value}\n`).join("")}`;
  };
  return [
    `IP ${address} is in use\n`,
    `Handle ID: ${handleId ?? "<none>"}\n`,
    section("Active Owner Attributes", attributes) || "No Active Owner attributes defined\n",
    section("Alternate Owner Attributes", alternateAttributes),
  ].join("");
}

type Allocations = Awaited<ReturnType<typeof readAllocations>>;

/** Returns addresses that a node uses from another node's block, and the number of allocations without a node. */
function borrowed(allocations: Allocations) {
  const rows: { address: string; node: string; block: string; owner: string; type: string; user: string }[] = [];
  let unknown = 0;
  for (const { address, block, attributes, affinity, coolingDown } of allocations) {
    if (coolingDown) continue;
    const owner = affinity?.split(":").at(-1) ?? "";
    const { node } = attributes;
    if (node === undefined) unknown++;
    else if (node !== owner) {
      const [type, user] = userOf(attributes);
      rows.push({ address, node, block, owner, type, user });
    }
  }
  return { rows, unknown };
}

function describeBorrowed(allocations: Allocations): string {
  const { rows, unknown } = borrowed(allocations);
  const titles = ["IP", "BORROWING-NODE", "BLOCK", "BLOCK OWNER", "TYPE", "ALLOCATED-TO"];
  const table = formatBoxTable(
    titles.map((title) => ({ title })),
    rows.map((row) => Object.values(row)),
  );
  return unknown === 0
    ? table
    : `${table}\nNote: found ${unknown} IP allocations without an explicit node association. Unable to determine if they are borrowed.\n`;
}

/** Returns the type and the name of the user of an address. */
function userOf(attributes: Labels): readonly [string, string] {
  const { namespace = "", pod, type = "" } = attributes;
  const machine = attributes["vmi-name"];
  if (machine !== undefined) return ["vmi", `${namespace}/${machine}`];
  return pod === undefined ? [type, ""] : ["pod", `${namespace}/${pod}`];
}

async function describeConfiguration(ipam: Ipam): Promise<string> {
  const config = await ipam.config();
  const rows = [
    ["StrictAffinity", String(config.strictAffinity)],
    ["AutoAllocateBlocks", String(config.autoAllocateBlocks)],
    ["MaxBlocksPerHost", String(config.maxBlocksPerHost)],
  ];
  // Newer settings are printed only if they are set, as in Calico.
  const { kubeVirtVmAddressPersistence: persistence, ipCooldownSeconds: cooldown } = config;
  if (persistence !== undefined) rows.push(["KubeVirtVMAddressPersistence", persistence]);
  if (cooldown !== undefined) rows.push(["IPCooldownSeconds", String(cooldown)]);
  return formatBoxTable([{ title: "PROPERTY" }, { title: "VALUE" }], rows, "center");
}
