// Between syncer and cache: what is invalid counts as absent, and is told once per change. Clients then need not agree
// on what is valid, and a value none of them could use never reaches them.
import type { SyncerSink, SyncerUpdate, SyncStatus } from "../datastore/index.ts";
import type { Logger } from "../lib/log.ts";
import {
  type Key,
  keyPath,
  loadSchemas,
  parseSelector,
  type Policy,
  type ResourceSchema,
  type Rule,
  type SchemaKind,
  type ValueOf,
  type WorkloadEndpoint,
} from "../model/index.ts";

export class ValidationFilter implements SyncerSink {
  readonly #next: SyncerSink;
  readonly #log: Logger;
  readonly #schemas: ReadonlyMap<string, ResourceSchema>;

  /** Loads every schema first: validating must not wait. */
  static async create(next: SyncerSink, log: Logger): Promise<ValidationFilter> {
    const { SCHEMA_KINDS, loadSchema } = await loadSchemas();
    const load = async (kind: SchemaKind) => [kind, (await loadSchema(kind)) as ResourceSchema] as const;
    return new ValidationFilter(next, log, new Map(await Promise.all(SCHEMA_KINDS.map(load))));
  }

  private constructor(next: SyncerSink, log: Logger, schemas: ReadonlyMap<string, ResourceSchema>) {
    this.#next = next;
    this.#log = log;
    this.#schemas = schemas;
  }

  onStatus(status: SyncStatus): void {
    this.#next.onStatus(status);
  }

  onUpdates(updates: readonly SyncerUpdate[]): void {
    this.#next.onUpdates(updates.map((update) => this.#check(update)));
  }

  onUnreadable(path: string, reason: string): void {
    this.#log.warn("unreadable entry skipped", { path, reason });
    this.#next.onUnreadable?.(path, reason);
  }

  #check(update: SyncerUpdate): SyncerUpdate {
    if (update.value === undefined) return update;
    const fault = this.#faultOf(update.key, update.value);
    if (fault === undefined) return update;
    this.#log.warn("invalid value counts as absent", { key: keyPath(update.key), reason: fault });
    return { ...update, value: undefined } as SyncerUpdate;
  }

  #faultOf(key: Key, value: ValueOf<Key>): string | undefined {
    switch (key.type) {
      case "resource": {
        const result = this.#schemas.get(key.kind)?.validate(value, "stored");
        if (result === undefined || result.ok) return undefined;
        return result.faults.map(({ field, reason }) => `${field}: ${reason}`).join("; ");
      }
      case "workloadEndpoint":
        return (value as WorkloadEndpoint).name === "" ? "it has no interface name" : undefined;
      case "policy":
        return policyFault(value as Policy);
      default:
        return undefined;
    }
  }
}

function policyFault(policy: Policy): string | undefined {
  const ofRule = ({ source, destination }: Rule) => [
    source.selector,
    source.notSelector,
    destination.selector,
    destination.notSelector,
  ];
  const rules = [...policy.inboundRules, ...policy.outboundRules];
  for (const selector of [policy.selector, ...rules.flatMap(ofRule)])
    if (selector !== undefined && selector !== "")
      try {
        parseSelector(selector);
      } catch (error) {
        return error instanceof Error ? error.message : String(error);
      }
  return undefined;
}
