// Implements `calicoctl ipam split`, which replaces one pool by several with the same settings. Everything is checked before
// the first write; then the pool is disabled, the parts are created, and the pool is deleted. Its blocks are not changed.
import { Client, NotFound } from "../../../datastore/index.ts";
import {
  type Cidr,
  cidrAddress,
  cidrLength,
  cidrSize,
  addressPlus,
  ipVersion,
  addressBits,
  tryParseCidr,
} from "../../../lib/ip/ip.ts";
import { ignoreUnreadable, readPool, type Resource, withSpecFields } from "../../../model/index.ts";
import { openChecked } from "../../resources/client.ts";
import type { Call } from "../../table/flags.ts";
import type { splitGrammar } from "../../table/ipam.ts";
import { UsageError } from "../../../lib/command-line/usage-error.ts";
import { Failure } from "../../command-line/failure.ts";
import { clusterInformation, isLocked } from "../migrate/shared.ts";
import { describe } from "../../resources/results.ts";

export async function run(call: Call<typeof splitGrammar>): Promise<number> {
  await using store = await openChecked(call);
  if (!isLocked(await clusterInformation(store)))
    throw new Failure(
      "Datastore is not locked. Run the `calicoctl datastore migrate lock` command in order split the IP pools.",
    );
  const pool = await findPool(store, call);
  const { cidr, parts } = planSplit(pool, call.args.NUMBER);
  const client = new Client(store.datastore);
  const disabled = await client.update(withSpecFields(pool, { disabled: true }), { unsafe: true });
  const created: string[] = [];
  for (const [i, part] of parts.entries()) {
    const name = `split-${pool.metadata.name}-${i}`;
    try {
      const metadata = copiedMetadata(pool, name);
      await client.create({ ...withSpecFields(pool, { cidr: part }), metadata }, { unsafe: true });
    } catch (error) {
      throw new Failure(
        `Error using unsafe create to make split pool with cidr ${part}: ${describe(error)}; pool ${pool.metadata.name} (${cidr}) is disabled${created.length === 0 ? "" : ` and ${created.join(", ")} exist`}: enable it again, or create the other parts and delete it`,
        { cause: error },
      );
    }
    created.push(name);
  }
  await store.datastore.delete(
    { type: "resource", kind: "IPPool", name: pool.metadata.name },
    { revision: disabled.metadata.resourceVersion ?? "" },
  );
  const lines = created.map((name, i) => `Created ${name} with CIDR ${parts[i]}.\n`).join("");
  call.io.out(
    `IP Pool ${pool.metadata.name} was successfully split into ${parts.length} smaller pools.${lines}Please refer to the documentation for final steps.`,
  );
  return 0;
}

async function findPool(store: Client, call: Call<typeof splitGrammar>): Promise<Resource> {
  const name = call.flags.name;
  const range = call.flags.cidr;
  const cidr = range === undefined ? undefined : tryParseCidr(range);
  if (name === undefined && range === undefined)
    throw new UsageError("No name or CIDR provided: use --name or --cidr to select the pool");
  if (range !== undefined && cidr === undefined) throw new Failure(`Invalid CIDR specified: ${range}`);
  const { items } = await store.list({ kind: "IPPool" });
  const matches = (pool: Resource) =>
    (name === undefined || pool.metadata.name === name) &&
    (cidr === undefined || readPool(pool, ignoreUnreadable)?.cidr === cidr);
  const found = items.find(matches);
  if (found !== undefined) return found;
  const missing = new NotFound(`IPPool(${name ?? range})`);
  if (name === undefined) throw new Failure(`Unable to find IP pool covering the specified CIDR ${range}`);
  if (cidr !== undefined && items.some((pool) => pool.metadata.name === name))
    throw new Failure(`IP pool ${name} does not have the CIDR ${cidr}`);
  throw new Failure(`Unable to find IP pool with name ${name}: ${missing.message}`, { cause: missing });
}

/** @throws Failure if the number is not valid for the pool */
function planSplit(pool: Resource, text: string): { cidr: Cidr; parts: readonly Cidr[] } {
  const { cidr, blockSize } = readPool(pool, ignoreUnreadable) ?? {};
  if (cidr === undefined || blockSize === undefined)
    throw new Failure(`IP pool ${pool.metadata.name} has no valid CIDR`);
  const number = /^\d{1,9}$/.test(text) ? Number(text) : Number.NaN;
  if (Number.isNaN(number)) throw new Failure(`Invalid NUMBER specified: ${text}: want a power of 2`);
  const bits = Math.log2(number);
  const fault = (why: string) => new Failure(`Error splitting the CIDR ${cidr} into ${text} CIDRs: ${why}`);
  if (number < 2 || !Number.isInteger(bits))
    throw fault(`Number to split CIDR into is not a valid power of 2: ${text}`);
  const length = cidrLength(cidr) + bits;
  if (length > addressBits(ipVersion(cidr))) throw fault(`each part would have less than one address`);
  if (length > blockSize)
    throw fault(
      `parts of /${length} are smaller than the pool's blocks of /${blockSize}: at most ${2 ** Math.max(0, blockSize - cidrLength(cidr))} parts`,
    );
  const step = cidrSize(cidr) / BigInt(number);
  const parts = Array.from(
    { length: number },
    (_, i) => `${addressPlus(cidrAddress(cidr), step * BigInt(i))}/${length}` as Cidr,
  );
  return { cidr, parts };
}

function copiedMetadata(pool: Resource, name: string): Resource["metadata"] {
  const { labels, annotations } = pool.metadata;
  return { name, ...(labels && { labels }), ...(annotations && { annotations }) };
}
