// Where OpenStack's metadata service is: rules need its address, and operators may have given its name.
import { isOpenStack } from "../../dataplane/index.ts";
import { type IpAddress, tryParseAddress } from "../../lib/ip.ts";
import { describeError, type Logger } from "../../lib/log.ts";

type MetadataSettings = Parameters<typeof isOpenStack>[0];

/** Nothing where nobody needs it, where it is an address already, or where nobody knows the name. */
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
    logger.warn("the metadata service's name is unknown: workloads cannot reach it; set MetadataAddr to its address", {
      name,
      error: describeError(error),
    });
    return undefined;
  }
}

/** Few nodes need a resolver: it is loaded where one is. */
async function lookUp(name: string): Promise<string> {
  const { lookup } = await import("node:dns/promises");
  return (await lookup(name, { family: 4 })).address;
}
