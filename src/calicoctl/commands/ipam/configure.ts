// Implements `calicoctl ipam configure`, which changes settings of IPAM.
import { BadRequest, Ipam } from "../../../ipam/index.ts";
import type { IpamConfig } from "../../../model/index.ts";
import { openChecked } from "../../resources/client.ts";
import type { Call } from "../../table/flags.ts";
import type { configureGrammar } from "../../table/ipam.ts";
import { UsageError } from "../../../lib/command-line/usage-error.ts";
import { Failure } from "../../command-line/failure.ts";

export async function run(call: Call<typeof configureGrammar>): Promise<number> {
  const settings = parseSettings(call.flags);
  if (settings.length === 0) throw new UsageError("at least one configuration option must be specified");
  await using store = await openChecked(call, { requests: "few", mayCreate: true });
  const ipam = new Ipam({ datastore: store.datastore });
  try {
    await ipam.configure(Object.assign({}, ...settings.map(({ change }) => change)) as Partial<IpamConfig>);
  } catch (error) {
    if (error instanceof BadRequest) throw new Failure(`Error: ${error.message}`, { cause: error });
    throw error;
  }
  for (const { name, value } of settings) call.io.out(`Successfully set ${name} to: ${value}\n`);
  return 0;
}

interface Setting {
  readonly name: string;
  readonly value: string;
  readonly change: Partial<IpamConfig>;
}

type ConfigureFlags = Call<typeof configureGrammar>["flags"];

function parseSettings(flags: ConfigureFlags): readonly Setting[] {
  const settings: Setting[] = [];
  const strict = flags.strictaffinity;
  if (strict !== undefined) {
    const isStrict = parseBoolean(strict);
    if (isStrict === undefined) throw new Failure("Invalid value. Use true or false to set strictaffinity");
    settings.push({ name: "StrictAffinity", value: String(isStrict), change: { strictAffinity: isStrict } });
  }
  const blocks = wholeNumber(flags, "max-blocks-per-host");
  if (blocks !== undefined)
    settings.push({ name: "MaxBlocksPerHost", value: String(blocks), change: { maxBlocksPerHost: blocks } });
  const persistence = flags["kubevirt-ip-persistence"];
  if (persistence !== undefined) {
    if (persistence !== "Enabled" && persistence !== "Disabled")
      throw new Failure("Invalid value. Use Enabled or Disabled to set kubevirt-ip-persistence");
    const change = { kubeVirtVmAddressPersistence: persistence };
    settings.push({ name: "KubeVirtVMAddressPersistence", value: persistence, change });
  }
  const cooldown = wholeNumber(flags, "ip-cooldown-seconds");
  if (cooldown !== undefined)
    settings.push({ name: "IPCooldownSeconds", value: String(cooldown), change: { ipCooldownSeconds: cooldown } });
  return settings;
}

/** Accepts the same texts as Go's strconv.ParseBool. */
function parseBoolean(text: string): boolean | undefined {
  if (/^(1|t|T|true|True|TRUE)$/.test(text)) return true;
  return /^(0|f|F|false|False|FALSE)$/.test(text) ? false : undefined;
}

function wholeNumber(flags: ConfigureFlags, name: "max-blocks-per-host" | "ip-cooldown-seconds"): number | undefined {
  const text = flags[name];
  if (text === undefined) return undefined;
  if (!/^\d{1,9}$/.test(text)) throw new Failure(`Invalid value. Use a whole number to set ${name}`);
  return Number(text);
}
