// Finds the role (source or target) of each local workload in live migrations.
//
// A migration identifies its source and target by name or, for the target only, by selector. If several migrations match
// a workload, the order of precedence is: target by selector, target by name, source; then the greatest UID.
import type {
  LiveMigration,
  MigratingWorkload,
  ParsedSelector,
  ResourceKey,
  WorkloadEndpointKey,
} from "../../model/index.ts";
import { type EndpointKey, endpointKeyText } from "../ids.ts";
import type { SelectionListener } from "../policy/active-rules.ts";
import type { Selections } from "./bgp-peers.ts";

export interface MigrationRole {
  readonly role: "source" | "target";
  readonly uid: string;
}

interface Migration {
  readonly uid: string;
  readonly source: string | undefined;
  readonly target: string | undefined;
  readonly selector: ParsedSelector | undefined;
}
interface Workload {
  readonly key: WorkloadEndpointKey;
  /** Names that a migration may use: that of the endpoint, and that of the workload with all of its endpoints. */
  readonly names: readonly [string, string];
  readonly selectors: Set<ParsedSelector>;
  /** The greatest UID of each of these selectors. */
  readonly selectedBy: SortedUids;
  emittedRole: MigrationRole | undefined;
}
/** Migrations whose target has the same selector, and the local workloads that it selects. */
interface Selection {
  readonly uids: SortedUids;
  readonly workloads: Set<Workload>;
}

/**
 * The owner of a namespace may create any number of migrations, so a change must not cost more than the migrations and
 * workloads that it concerns: both are indexed by name and by selector.
 */
export class LiveMigrations implements SelectionListener {
  readonly #selections: Selections;
  readonly #onRoleChanged: (key: WorkloadEndpointKey, role: MigrationRole | undefined) => void;
  readonly #migrations = new Map<string, Migration>();
  readonly #bySource = new Map<string, SortedUids>();
  readonly #byTarget = new Map<string, SortedUids>();
  readonly #bySelector = new Map<ParsedSelector, Selection>();
  readonly #workloads = new Map<string, Workload>();
  readonly #workloadsByName = new Map<string, Set<Workload>>();
  /** Workloads whose role may have changed. */
  readonly #affected = new Set<Workload>();
  #isUpdating = false;
  #roleComputations = 0;

  constructor(
    selections: Selections,
    onRoleChanged: (key: WorkloadEndpointKey, role: MigrationRole | undefined) => void,
  ) {
    this.#selections = selections;
    this.#onRoleChanged = onRoleChanged;
  }

  /** How often the role of a workload was computed. Tests use it as the cost of the changes so far. */
  get roleComputations(): number {
    return this.#roleComputations;
  }

  /** Must be called before `Selections` processes the same workload. */
  setWorkload(key: WorkloadEndpointKey, exists: boolean): void {
    const id = endpointKeyText(key);
    const known = this.#workloads.get(id);
    if (exists === (known !== undefined)) return;
    if (known === undefined) this.#update(() => this.#addWorkload(id, key));
    else this.#removeWorkload(id, known);
  }

  setMigration(key: ResourceKey, migration: LiveMigration | undefined): void {
    const id = `${key.namespace ?? ""}/${key.name}`;
    const before = this.#migrations.get(id);
    const after = migration === undefined ? undefined : migrationOf(migration);
    if (after === undefined) this.#migrations.delete(id);
    else this.#migrations.set(id, after);
    this.#update(() => {
      // Add first, so that a selector that the old and the new migration share stays registered.
      if (after !== undefined) this.#addMigration(after);
      if (before !== undefined) this.#removeMigration(before);
    });
  }

  onSelected(selector: ParsedSelector, key: EndpointKey): void {
    const workload = this.#workloads.get(endpointKeyText(key));
    const selection = this.#bySelector.get(selector);
    if (workload === undefined || selection === undefined || selection.workloads.has(workload)) return;
    this.#update(() => {
      selection.workloads.add(workload);
      workload.selectors.add(selector);
      workload.selectedBy.add(selection.uids.greatest ?? "");
      this.#affected.add(workload);
    });
  }
  onDeselected(selector: ParsedSelector, key: EndpointKey): void {
    const workload = this.#workloads.get(endpointKeyText(key));
    const selection = this.#bySelector.get(selector);
    if (workload === undefined || selection?.workloads.delete(workload) !== true) return;
    this.#update(() => {
      workload.selectors.delete(selector);
      workload.selectedBy.delete(selection.uids.greatest ?? "");
      this.#affected.add(workload);
    });
  }

  #addWorkload(id: string, key: WorkloadEndpointKey): void {
    const names = [identity(key.orchestrator, key), identity(key.orchestrator, { ...key, endpoint: "" })] as const;
    const workload = {
      key,
      names,
      selectors: new Set<ParsedSelector>(),
      selectedBy: new SortedUids(),
      emittedRole: undefined,
    };
    this.#workloads.set(id, workload);
    for (const name of names) {
      const named = this.#workloadsByName.get(name) ?? new Set<Workload>();
      this.#workloadsByName.set(name, named.add(workload));
    }
    this.#affected.add(workload);
  }

  #removeWorkload(id: string, workload: Workload): void {
    this.#workloads.delete(id);
    for (const name of workload.names) {
      const named = this.#workloadsByName.get(name);
      named?.delete(workload);
      if (named?.size === 0) this.#workloadsByName.delete(name);
    }
    for (const selector of workload.selectors) this.#bySelector.get(selector)?.workloads.delete(workload);
    if (workload.emittedRole !== undefined) this.#onRoleChanged(workload.key, undefined);
  }

  #addMigration({ uid, source, target, selector }: Migration): void {
    for (const [index, name] of [
      [this.#bySource, source],
      [this.#byTarget, target],
    ] as const) {
      if (name === undefined) continue;
      const uids = index.get(name) ?? new SortedUids();
      uids.add(uid);
      index.set(name, uids);
      this.#affectNamed(name);
    }
    if (selector === undefined) return;
    const selection = this.#bySelector.get(selector);
    if (selection !== undefined) return this.#changeSelection(selection, () => selection.uids.add(uid));
    const uids = new SortedUids();
    uids.add(uid);
    this.#bySelector.set(selector, { uids, workloads: new Set() });
    this.#selections.addSelection(selector, this);
  }

  #removeMigration({ uid, source, target, selector }: Migration): void {
    for (const [index, name] of [
      [this.#bySource, source],
      [this.#byTarget, target],
    ] as const) {
      if (name === undefined) continue;
      const uids = index.get(name);
      uids?.delete(uid);
      if (uids?.greatest === undefined) index.delete(name);
      this.#affectNamed(name);
    }
    const selection = selector === undefined ? undefined : this.#bySelector.get(selector);
    if (selector === undefined || selection === undefined) return;
    if (selection.uids.size > 1) return this.#changeSelection(selection, () => selection.uids.delete(uid));
    this.#selections.removeSelection(selector, this);
    this.#bySelector.delete(selector);
  }

  #affectNamed(name: string): void {
    for (const workload of this.#workloadsByName.get(name) ?? []) this.#affected.add(workload);
  }

  #changeSelection({ uids, workloads }: Selection, change: () => void): void {
    const before = uids.greatest ?? "";
    change();
    const after = uids.greatest ?? "";
    if (before === after) return;
    for (const workload of workloads) {
      workload.selectedBy.delete(before);
      workload.selectedBy.add(after);
      this.#affected.add(workload);
    }
  }

  /** Emits the changed roles once, after the change is complete: `Selections` calls `onSelected` during the change. */
  #update(change: () => void): void {
    if (this.#isUpdating) return change();
    this.#isUpdating = true;
    try {
      change();
    } finally {
      this.#isUpdating = false;
    }
    const affected = [...this.#affected];
    this.#affected.clear();
    for (const workload of affected) {
      const role = this.#roleOf(workload);
      if (role?.role === workload.emittedRole?.role && role?.uid === workload.emittedRole?.uid) continue;
      workload.emittedRole = role;
      this.#onRoleChanged(workload.key, role);
    }
  }

  #roleOf({ names, selectedBy }: Workload): MigrationRole | undefined {
    this.#roleComputations++;
    const greatestNamed = (index: ReadonlyMap<string, SortedUids>) =>
      names.map((name) => index.get(name)?.greatest).reduce(greater, undefined);
    const target = selectedBy.greatest ?? greatestNamed(this.#byTarget);
    if (target !== undefined) return { role: "target", uid: target };
    const source = greatestNamed(this.#bySource);
    return source === undefined ? undefined : { role: "source", uid: source };
  }
}

const greater = (a: string | undefined, b: string | undefined): string | undefined =>
  a === undefined || (b !== undefined && b > a) ? b : a;

/** UIDs in ascending order, each as often as it was added. */
class SortedUids {
  readonly #uids: string[] = [];

  get size(): number {
    return this.#uids.length;
  }
  get greatest(): string | undefined {
    return this.#uids.at(-1);
  }
  add(uid: string): void {
    this.#uids.splice(this.#indexOf(uid), 0, uid);
  }
  delete(uid: string): void {
    const index = this.#indexOf(uid);
    if (this.#uids[index] === uid) this.#uids.splice(index, 1);
  }
  /** The index of the first UID that is not less. */
  #indexOf(uid: string): number {
    let [low, high] = [0, this.#uids.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((this.#uids[middle] ?? "") < uid) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}

function migrationOf({ uid, source, target, targetSelector }: LiveMigration): Migration {
  const name = (of: MigratingWorkload | undefined) => of && identity(of.orchestrator, of);
  return { uid, source: name(source), target: name(target), selector: targetSelector };
}

/** Returns a unique text for a workload or an endpoint. The host is not part of it for Kubernetes pods. */
function identity(
  orchestrator: string,
  of: { readonly host: string; readonly workload: string; readonly endpoint: string },
): string {
  return `${orchestrator} ${orchestrator === "k8s" ? "" : of.host} ${of.workload} ${of.endpoint}`;
}
