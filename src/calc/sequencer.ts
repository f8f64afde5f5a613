// Orders the graph's messages for the dataplane: an object is sent before the objects that refer to it and removed after
// them. Between flushes, only the latest message per object is kept, and nothing is sent for an object that was created
// and removed again. The memory that a slow dataplane costs therefore depends on the number of objects, not of changes.
import type { DataplaneMessage, IpSetId, IpSetType } from "./messages.ts";

/** Pending messages for one kind of object, by key, and the keys of the objects that the dataplane has. */
class PendingMessages {
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

/** Pending messages for IP sets: complete new sets, and changes to sets that the dataplane has. */
class PendingIpSets {
  readonly #added = new Map<IpSetId, { readonly type: IpSetType; readonly members: Set<string> }>();
  readonly #changed = new Map<IpSetId, { readonly added: Set<string>; readonly removed: Set<string> }>();
  readonly #removed = new Set<IpSetId>();
  readonly #sent = new Set<IpSetId>();
  /** New sets to which members are still being added. They are not sent, because nothing refers to them yet. */
  readonly #incomplete = new Set<IpSetId>();

  setIncomplete(id: IpSetId): void {
    this.#incomplete.add(id);
  }
  setComplete(id: IpSetId): void {
    this.#incomplete.delete(id);
  }

  add(id: IpSetId, type: IpSetType): void {
    if (this.#added.has(id) || (this.#sent.has(id) && !this.#removed.has(id)))
      throw new Error(`IP set ${id} already exists`);
    this.#removed.delete(id); // the complete new content replaces the set that the dataplane has
    this.#added.set(id, { type, members: new Set() });
  }

  remove(id: IpSetId): void {
    this.#changed.delete(id);
    this.#added.delete(id);
    this.#incomplete.delete(id);
    if (this.#sent.has(id)) this.#removed.add(id);
  }

  addMember(id: IpSetId, member: string): void {
    const newSet = this.#added.get(id);
    if (newSet !== undefined) newSet.members.add(member);
    else {
      const change = this.#change(id);
      if (change.removed.size === 0 || !change.removed.delete(member)) change.added.add(member);
    }
  }

  removeMember(id: IpSetId, member: string): void {
    const newSet = this.#added.get(id);
    if (newSet !== undefined) newSet.members.delete(member);
    else {
      const change = this.#change(id);
      if (change.added.size === 0 || !change.added.delete(member)) change.removed.add(member);
    }
  }

  flushUpdates(emit: (message: DataplaneMessage) => void): void {
    for (const [id, { type, members }] of this.#added) {
      if (this.#incomplete.has(id)) continue;
      this.#added.delete(id);
      this.#sent.add(id);
      emit({ type: "ipSetUpdate", id, setType: type, members: [...members] });
    }
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
  readonly ipSets = new PendingIpSets();
  readonly policies = new PendingMessages();
  readonly profiles = new PendingMessages();
  readonly endpoints = new PendingMessages();
  readonly serviceAccounts = new PendingMessages();
  readonly namespaces = new PendingMessages();
  readonly routes = new PendingMessages();
  readonly vteps = new PendingMessages();
  readonly wireguard = new PendingMessages();
  readonly hosts = new PendingMessages();
  readonly pools = new PendingMessages();
  readonly services = new PendingMessages();
  #encapsulation: DataplaneMessage | undefined;
  #bgpConfig: DataplaneMessage | undefined;
  readonly #beforeMessages: (() => void)[] = [];

  setEncapsulation(message: Extract<DataplaneMessage, { readonly type: "encapsulation" }>): void {
    this.#encapsulation = message;
  }
  setBgpConfig(message: Extract<DataplaneMessage, { readonly type: "globalBgpConfigUpdate" }>): void {
    this.#bgpConfig = message;
  }
  /** Calls `callback` at the next flush before all messages: a changed configuration may end the process. */
  beforeMessages(callback: () => void): void {
    this.#beforeMessages.push(callback);
  }

  flush(emit: (message: DataplaneMessage) => void): void {
    for (const callback of this.#beforeMessages.splice(0)) callback();
    this.ipSets.flushUpdates(emit);
    for (const pending of [this.policies, this.profiles, this.endpoints]) pending.flushUpdates(emit);
    for (const pending of [this.endpoints, this.profiles, this.policies]) pending.flushRemoves(emit);
    this.ipSets.flushRemoves(emit);
    for (const pending of [this.serviceAccounts, this.namespaces]) {
      pending.flushRemoves(emit);
      pending.flushUpdates(emit);
    }
    // A route must not exist without its tunnel endpoint: routes are removed first and added last.
    this.routes.flushRemoves(emit);
    this.vteps.flushRemoves(emit);
    this.vteps.flushUpdates(emit);
    this.routes.flushUpdates(emit);
    for (const pending of [this.wireguard, this.hosts, this.pools]) {
      pending.flushRemoves(emit);
      pending.flushUpdates(emit);
    }
    if (this.#encapsulation !== undefined) emit(this.#encapsulation);
    if (this.#bgpConfig !== undefined) emit(this.#bgpConfig);
    this.#encapsulation = undefined;
    this.#bgpConfig = undefined;
    this.services.flushRemoves(emit);
    this.services.flushUpdates(emit);
  }
}
