// Finds configured settings that have no effect in calico-ts.
import {
  FELIX_SETTINGS,
  type FelixConfig,
  felixDefaultOf,
  felixSettingNames,
  type FelixSetting,
} from "../../model/index.ts";
import { isSameValue } from "./engine.ts";

/** Returns one sentence per reason. Settings with their default value are not reported. */
export function settingsWithoutEffect(config: FelixConfig): string[] {
  const namesByReason = new Map<string, string[]>();
  const add = (reason: string, name: string) => namesByReason.set(reason, [...(namesByReason.get(reason) ?? []), name]);
  if (config.RouteTableRange !== undefined && config.RouteTableRanges.length > 0)
    add("RouteTableRanges is set too", "RouteTableRange");
  for (const name of felixSettingNames()) {
    const { noEffect, source }: FelixSetting = FELIX_SETTINGS[name];
    // Settings that come from another resource are always set by the syncer, not by the user.
    if (noEffect === undefined || source !== undefined) continue;
    if (!isSameValue(config[name], felixDefaultOf(name))) add(noEffect, name);
  }
  return [...namesByReason].map(([reason, names]) => `${names.join(", ")}: no effect: ${reason}`);
}
