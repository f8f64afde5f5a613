// Puts what the graph says into an order the dataplane can follow: a thing before what refers to it, its removal after.
// Between flushes only the last word on each object is kept, and a thing that came and went is never mentioned; so a
// slow dataplane costs memory by the number of objects, not of changes.
import type { DataplaneMessage, IpSetId, IpSetType } from "./messages.ts";

/** One sort of object: what is to be said of each, and which the dataplane knows of. */
class Slot {
  readonly #updates = new Map<string, DataplaneMessage>();
  readonly #removes = new Map<string, DataplaneMessage>();
  readonly #sent = new Set<string>();

  update(key: string, message: DataplaneMessage): void {
    this.#removes.delete(key);
    this.#updates.set(key, message);
  }

  remove(key: string, message: DataplaneMessage): void {
    this.#updates.delete(key);
    if (this.#sent.has(key)) this.#removes.set(key, message);
  }

  flushUpdates(emit: (message: DataplaneMessage) => void): void {
    for (const [key, message] of this.#updates) {
      this.#sent.add(key);
      emit(message);
    }
    this.#updates.clear();
  }

  flushRemoves(emit: (message: DataplaneMessage) => void): void {
    for (const [key, message] of this.#removes) {
      this.#sent.delete(key);
      emit(message);
    }
    this.#removes.clear();
  }
}

/** Sets by ID: whole ones that are new, and changes to known ones. */
class IpSetSlot {
  readonly #added = new Map<IpSetId, { readonly type: IpSetType; readonly members: Set<string> }>();
  readonly #changed = new Map<IpSetId, { readonly added: Set<string>; readonly removed: Set<string> }>();
  readonly #removed = new Set<IpSetId>();
  readonly #sent = new Set<IpSetId>();

  add(id: IpSetId, type: IpSetType): void {
    if (this.#added.has(id) || (this.#sent.has(id) && !this.#removed.has(id)))
      throw new Error(`IP set ${id} exists already`);
    this.#removed.delete(id); // the whole new content replaces what the dataplane has
    this.#added.set(id, { type, members: new Set() });
  }

  remove(id: IpSetId): void {
    this.#changed.delete(id);
    this.#added.delete(id);
    if (this.#sent.has(id)) this.#removed.add(id);
  }

  addMember(id: IpSetId, member: string): void {
    const whole = this.#added.get(id);
    if (whole !== undefined) whole.members.add(member);
    else {
      const change = this.#change(id);
      if (change.removed.size === 0 || !change.removed.delete(member)) change.added.add(member);
    }
  }

  removeMember(id: IpSetId, member: string): void {
    const whole = this.#added.get(id);
    if (whole !== undefined) whole.members.delete(member);
    else {
      const change = this.#change(id);
      if (change.added.size === 0 || !change.added.delete(member)) change.removed.add(member);
    }
  }

  flushUpdates(emit: (message: DataplaneMessage) => void): void {
    for (const [id, { type, members }] of this.#added) {
      this.#sent.add(id);
      emit({ type: "ipSetUpdate", id, setType: type, members: [...members] });
    }
    this.#added.clear();
    for (const [id, { added, removed }] of this.#changed)
      if (added.size + removed.size > 0)
        emit({ type: "ipSetDeltaUpdate", id, added: [...added], removed: [...removed] });
    this.#changed.clear();
  }

  flushRemoves(emit: (message: DataplaneMessage) => void): void {
    for (const id of this.#removed) {
      this.#sent.delete(id);
      emit({ type: "ipSetRemove", id });
    }
    this.#removed.clear();
  }

  #change(id: IpSetId): { readonly added: Set<string>; readonly removed: Set<string> } {
    if (!this.#sent.has(id) || this.#removed.has(id)) throw new Error(`IP set ${id} is unknown`);
    let change = this.#changed.get(id);
    if (change === undefined) this.#changed.set(id, (change = { added: new Set(), removed: new Set() }));
    return change;
  }
}

export class EventSequencer {
  readonly ipSets = new IpSetSlot();
  readonly policies = new Slot();
  readonly profiles = new Slot();
  readonly endpoints = new Slot();
  readonly serviceAccounts = new Slot();
  readonly namespaces = new Slot();
  readonly routes = new Slot();
  readonly vteps = new Slot();
  readonly wireguard = new Slot();
  readonly hosts = new Slot();
  readonly pools = new Slot();
  readonly services = new Slot();
  #encapsulation: DataplaneMessage | undefined;
  #bgpConfig: DataplaneMessage | undefined;
  readonly #beforeAll: (() => void)[] = [];

  setEncapsulation(message: Extract<DataplaneMessage, { readonly type: "encapsulation" }>): void {
    this.#encapsulation = message;
  }
  setBgpConfig(message: Extract<DataplaneMessage, { readonly type: "globalBgpConfigUpdate" }>): void {
    this.#bgpConfig = message;
  }
  /** Something to be said ahead of everything else: configuration may end the process. */
  sayFirst(say: () => void): void {
    this.#beforeAll.push(say);
  }

  flush(emit: (message: DataplaneMessage) => void): void {
    for (const say of this.#beforeAll.splice(0)) say();
    this.ipSets.flushUpdates(emit);
    for (const slot of [this.policies, this.profiles, this.endpoints]) slot.flushUpdates(emit);
    for (const slot of [this.endpoints, this.profiles, this.policies]) slot.flushRemoves(emit);
    this.ipSets.flushRemoves(emit);
    for (const slot of [this.serviceAccounts, this.namespaces]) {
      slot.flushRemoves(emit);
      slot.flushUpdates(emit);
    }
    // No route stands without its tunnel endpoint: routes go first and come last.
    this.routes.flushRemoves(emit);
    this.vteps.flushRemoves(emit);
    this.vteps.flushUpdates(emit);
    this.routes.flushUpdates(emit);
    for (const slot of [this.wireguard, this.hosts, this.pools]) {
      slot.flushRemoves(emit);
      slot.flushUpdates(emit);
    }
    if (this.#encapsulation !== undefined) emit(this.#encapsulation);
    if (this.#bgpConfig !== undefined) emit(this.#bgpConfig);
    this.#encapsulation = undefined;
    this.#bgpConfig = undefined;
    this.services.flushRemoves(emit);
    this.services.flushUpdates(emit);
  }
}
