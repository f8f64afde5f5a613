// Reads the fields of FelixConfigurations that are used outside Felix, or by Felix before it has loaded its settings.
// `felixSettings` reads all settings.
import { JsonReader } from "../../lib/encoding/json-reader.ts";
import type { Resource } from "../resource.ts";
import { nodeSelectorIn, type NodeSelector } from "./fields.ts";
import { fieldReader, type OnUnreadable } from "./unreadable.ts";

export interface FelixConfiguration {
  /** The nodes to which the configuration applies, unless its name determines them. Undefined: no node. */
  readonly nodeSelector: NodeSelector | undefined;
  readonly wireguardHostEncryptionEnabled: boolean;
}

export function readFelixConfiguration(resource: Resource, onUnreadable: OnUnreadable): FelixConfiguration {
  const read = fieldReader(onUnreadable);
  const spec = read(() => new JsonReader(resource.spec ?? {}, "spec"), undefined);
  return {
    nodeSelector: read(() => spec && nodeSelectorIn(spec, "nodeSelector"), undefined),
    wireguardHostEncryptionEnabled: read(() => spec?.flag("wireguardHostEncryptionEnabled"), undefined) ?? false,
  };
}
