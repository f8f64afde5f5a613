// Reads LiveMigrations.
import { JsonReader } from "../../lib/encoding/json-reader.ts";
import type { Resource } from "../resource.ts";
import type { ParsedSelector } from "../selector/selector.ts";
import { selectorIn } from "./fields.ts";
import { fieldReader, type OnUnreadable } from "./unreadable.ts";

export interface LiveMigration {
  readonly uid: string;
  readonly source: MigratingWorkload | undefined;
  readonly target: MigratingWorkload | undefined;
  readonly targetSelector: ParsedSelector | undefined;
}
export interface MigratingWorkload {
  readonly orchestrator: string;
  readonly host: string;
  readonly workload: string;
  /** Empty for all endpoints of the workload. */
  readonly endpoint: string;
}

export function readLiveMigration({ metadata, spec: json }: Resource, onUnreadable: OnUnreadable): LiveMigration {
  const read = fieldReader(onUnreadable);
  const spec = read(() => new JsonReader(json ?? {}, "spec"), undefined);
  const source = read(() => spec?.object("source"), undefined);
  const target = read(() => spec?.object("target"), undefined);
  return {
    uid: metadata.uid ?? "",
    source: read(() => workloadIn(source, "workload") ?? workloadIn(source, "workloadEndpoint"), undefined),
    target: read(() => workloadIn(target, "workloadEndpoint"), undefined),
    targetSelector: read(() => target && selectorIn(target, "selector"), undefined),
  };
}

function workloadIn(
  from: JsonReader | undefined,
  name: "workload" | "workloadEndpoint",
): MigratingWorkload | undefined {
  const identifier = from?.object(name);
  if (identifier === undefined) return undefined;
  const endpoint = identifier.text("endpointID") ?? "";
  return {
    orchestrator: identifier.text("orchestratorID") ?? "",
    host: identifier.text("hostname") ?? "",
    workload: identifier.text("workloadID") ?? "",
    endpoint: name === "workload" ? "" : endpoint,
  };
}
