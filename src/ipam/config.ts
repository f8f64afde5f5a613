// Reads and changes the cluster-wide settings of IPAM. If they are not stored, the defaults apply; reading never writes.
import { NotFound } from "../datastore/index.ts";
import type { IpamConfig } from "../model/index.ts";
import { type Context, isConflict, retryOnConflict } from "./context.ts";
import { BadRequest } from "./errors.ts";

const DEFAULT_CONFIG: IpamConfig = { strictAffinity: false, autoAllocateBlocks: true, maxBlocksPerHost: 0 };
/** Written by the first change if no settings are stored yet. */
const INITIAL_CONFIG: IpamConfig = { ...DEFAULT_CONFIG, kubeVirtVmAddressPersistence: "Enabled" };
export const DEFAULT_MAX_BLOCKS_PER_HOST = 20;
const MAX_COOLDOWN_SECONDS = 1200;

export const configOf = (stored: IpamConfig | undefined): IpamConfig => stored ?? DEFAULT_CONFIG;

export async function readConfig(context: Context): Promise<IpamConfig> {
  return configOf(await context.records.config());
}

async function storedConfig(context: Context) {
  try {
    return await context.records.store.get({ type: "ipamConfig" }, context.records.call);
  } catch (error) {
    if (error instanceof NotFound) return undefined;
    throw error;
  }
}

/**
 * Changes some settings and keeps the others.
 * @throws BadRequest if settings contradict each other
 */
export async function changeConfig(context: Context, change: Partial<IpamConfig>): Promise<IpamConfig> {
  const { store, call } = context.records;
  return retryOnConflict(context, "IPAM configuration", async () => {
    const stored = await storedConfig(context);
    const value: IpamConfig = { ...(stored?.value ?? INITIAL_CONFIG), ...change };
    if (stored !== undefined && sameConfig(stored.value, value)) return value; // not checked: an older version may have stored it
    validate(value);
    try {
      if (stored === undefined) await store.create({ key: { type: "ipamConfig" }, value }, call);
      else await store.update({ ...stored, value }, call);
      return value;
    } catch (error) {
      if (isConflict(error)) return undefined;
      throw error;
    }
  });
}

function validate(value: IpamConfig): void {
  if (!value.strictAffinity && !value.autoAllocateBlocks)
    throw new BadRequest("cannot disable 'StrictAffinity' and 'AutoAllocateBlocks' at the same time");
  if (value.maxBlocksPerHost < 0) throw new BadRequest("MaxBlocksPerHost must not be negative");
  if (value.maxBlocksPerHost > 0 && !value.strictAffinity)
    throw new BadRequest("MaxBlocksPerHost requires StrictAffinity to be enabled");
  const cooldown = value.ipCooldownSeconds ?? 0;
  if (!Number.isInteger(cooldown) || cooldown < 0 || cooldown > MAX_COOLDOWN_SECONDS)
    throw new BadRequest(`IPCooldownSeconds must be a whole number from 0 to ${MAX_COOLDOWN_SECONDS}`);
}

const sameConfig = (a: IpamConfig, b: IpamConfig): boolean =>
  a.strictAffinity === b.strictAffinity &&
  a.autoAllocateBlocks === b.autoAllocateBlocks &&
  a.maxBlocksPerHost === b.maxBlocksPerHost &&
  (a.ipCooldownSeconds ?? 0) === (b.ipCooldownSeconds ?? 0) &&
  (a.kubeVirtVmAddressPersistence ?? "Enabled") === (b.kubeVirtVmAddressPersistence ?? "Enabled");
