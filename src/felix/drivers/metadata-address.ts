// Where OpenStack's metadata service is: rules need its address, and operators may have given its name.
import { lookup } from "node:dns/promises";
import { isOpenStack } from "../../dataplane/index.ts";
import { type IpAddress, tryParseAddress } from "../../lib/ip.ts";
import { describeError, type Logger } from "../../lib/log.ts";

type MetadataSettings = Parameters<typeof isOpenStack>[0];

/** Nothing where nobody needs it, where it is an address already, or where nobody knows the name. */
export async function findMetadataAddress(
  settings: MetadataSettings,
  logger: Logger,
  resolve: (name: string) => Promise<string> = async (name) => (await lookup(name, { family: 4 })).address,
): Promise<IpAddress | undefined> {
  const { MetadataAddr: name } = settings;
  if (!isOpenStack(settings) || name === "" || tryParseAddress(name) !== undefined) return undefined;
  try {
    return tryParseAddress(await resolve(name));
  } catch (error) {
    logger.warn("the metadata service's name is unknown: workloads cannot reach it; set MetadataAddr to its address", {
      name,
      error: describeError(error),
    });
    return undefined;
  }
}
