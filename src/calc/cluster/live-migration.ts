// Which local workloads are being moved, and in which direction. A migration names its source and target by identity
// or, for the target, by selector; a selector wins over a name, a target over a source, the greatest UID over the rest.
import { type Resource, type ResourceKey, tryParseSelector, type WorkloadEndpointKey } from "../../model/index.ts";
import { type EndpointKey, endpointKeyText } from "../ids.ts";
import type { SelectionListener } from "../policy/active-rules.ts";
import { type LiveMigrationSpec, specOf } from "../resources.ts";
import type { Selections } from "./bgp-peers.ts";

export interface MigrationRole {
  readonly role: "source" | "target";
  readonly uid: string;
}

interface Migration {
  readonly uid: string;
  readonly source: string | undefined;
  readonly target: string | undefined;
  readonly selector: string | undefined;
}
interface Workload {
  readonly key: WorkloadEndpointKey;
  readonly selectors: Set<string>;
  said: MigrationRole | undefined;
}

export class LiveMigrations implements SelectionListener {
  readonly #selections: Selections;
  readonly #say: (key: WorkloadEndpointKey, role: MigrationRole | undefined) => void;
  readonly #migrations = new Map<string, Migration>();
  readonly #workloads = new Map<string, Workload>();

  constructor(selections: Selections, say: (key: WorkloadEndpointKey, role: MigrationRole | undefined) => void) {
    this.#selections = selections;
    this.#say = say;
  }

  /** Must hear of a workload before the selections do. */
  setWorkload(key: WorkloadEndpointKey, isThere: boolean): void {
    const id = endpointKeyText(key);
    const known = this.#workloads.get(id);
    if (isThere === (known !== undefined)) return;
    if (known === undefined) {
      this.#workloads.set(id, { key, selectors: new Set(), said: undefined });
      this.#review();
      return;
    }
    this.#workloads.delete(id);
    if (known.said !== undefined) this.#say(key, undefined);
  }

  setMigration(key: ResourceKey, resource: Resource | undefined): void {
    const id = `${key.namespace ?? ""}/${key.name}`;
    const before = this.#migrations.get(id);
    const after = resource === undefined ? undefined : migrationOf(resource);
    if (after === undefined) this.#migrations.delete(id);
    else this.#migrations.set(id, after);
    if (before?.selector !== after?.selector) {
      if (after?.selector !== undefined) this.#selections.addSelection(after.selector, this);
      const stillUsed = [...this.#migrations.values()].some((each) => each.selector === before?.selector);
      if (before?.selector !== undefined && !stillUsed) this.#selections.removeSelection(before.selector, this);
    }
    this.#review();
  }

  onSelected(selector: string, key: EndpointKey): void {
    this.#workloads.get(endpointKeyText(key))?.selectors.add(selector);
    this.#review();
  }
  onDeselected(selector: string, key: EndpointKey): void {
    this.#workloads.get(endpointKeyText(key))?.selectors.delete(selector);
    this.#review();
  }

  /** Local workloads and migrations are few: all of them against all. */
  #review(): void {
    if (this.#migrations.size === 0 && ![...this.#workloads.values()].some(({ said }) => said !== undefined)) return;
    for (const workload of this.#workloads.values()) {
      const role = this.#roleOf(workload);
      if (role?.role === workload.said?.role && role?.uid === workload.said?.uid) continue;
      workload.said = role;
      this.#say(workload.key, role);
    }
  }

  #roleOf({ key, selectors }: Workload): MigrationRole | undefined {
    const names = [identity(key.orchestrator, key), identity(key.orchestrator, { ...key, endpoint: "" })];
    const migrations = [...this.#migrations.values()];
    const selected = migrations.filter((each) => each.selector !== undefined && selectors.has(each.selector));
    if (selected.length > 0) return { role: "target", uid: greatestUid(selected) };
    const targets = migrations.filter((each) => each.target !== undefined && names.includes(each.target));
    if (targets.length > 0) return { role: "target", uid: greatestUid(targets) };
    const sources = migrations.filter((each) => each.source !== undefined && names.includes(each.source));
    return sources.length === 0 ? undefined : { role: "source", uid: greatestUid(sources) };
  }
}

function migrationOf(resource: Resource): Migration {
  const { source, target } = specOf<LiveMigrationSpec>(resource);
  const name = (of: NonNullable<LiveMigrationSpec["source"]>["workloadEndpoint"], endpoint: string) =>
    of === undefined
      ? undefined
      : identity(of.orchestratorID ?? "", { host: of.hostname ?? "", workload: of.workloadID ?? "", endpoint });
  const selector = target?.selector ?? "";
  return {
    uid: resource.metadata.uid ?? "",
    source: name(source?.workload, "") ?? name(source?.workloadEndpoint, source?.workloadEndpoint?.endpointID ?? ""),
    target: name(target?.workloadEndpoint, target?.workloadEndpoint?.endpointID ?? ""),
    selector: selector === "" || tryParseSelector(selector) === undefined ? undefined : selector,
  };
}

/** One text per workload, or per endpoint of one. A Kubernetes pod is known by its name alone, wherever it runs. */
function identity(
  orchestrator: string,
  of: { readonly host: string; readonly workload: string; readonly endpoint: string },
): string {
  return `${orchestrator} ${orchestrator === "k8s" ? "" : of.host} ${of.workload} ${of.endpoint}`;
}

const greatestUid = (migrations: readonly Migration[]): string =>
  migrations.reduce((greatest, { uid }) => (uid > greatest ? uid : greatest), "");
