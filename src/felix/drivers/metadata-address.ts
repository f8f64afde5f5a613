// Resolves the host name of OpenStack's metadata service: rules need its address, but MetadataAddr may contain a name.
import { isOpenStack } from "../../dataplane/index.ts";
import { type IpAddress, tryParseAddress } from "../../lib/ip/ip.ts";
import { describeError, type Logger } from "../../lib/log/log.ts";

type MetadataSettings = Parameters<typeof isOpenStack>[0];

/** Returns undefined if the address is not needed, if MetadataAddr is already an address, or if the lookup fails. */
export async function findMetadataAddress(
  settings: MetadataSettings,
  logger: Logger,
  resolve: (name: string) => Promise<string> = lookUp,
): Promise<IpAddress | undefined> {
  const { MetadataAddr: name } = settings;
  if (!isOpenStack(settings) || name === "" || tryParseAddress(name) !== undefined) return undefined;
  try {
    return tryParseAddress(await resolve(name));
  } catch (error) {
    logger.warn("cannot resolve MetadataAddr: workloads cannot reach the metadata service; set it to an IP address", {
      name,
      error: describeError(error),
    });
    return undefined;
  }
}

/** The resolver is loaded on demand, because few nodes need it. */
async function lookUp(name: string): Promise<string> {
  const { lookup } = await import("node:dns/promises");
  return (await lookup(name, { family: 4 })).address;
}
