// Converts the responses of an etcd watch to batches of typed events, in the order of their revisions.
import type { StoredKey } from "../../model/index.ts";
import type { PathRange } from "../codec.ts";
import type { Stored, Watch, WatchEvent } from "../datastore.ts";
import { changeEvent, type RowChange, snapshotEvents } from "../rows.ts";
import type { EtcdWatchStream } from "./api.ts";
import type { EtcdEvent } from "./messages.ts";

interface Options<K extends StoredKey> {
  readonly stream: EtcdWatchStream;
  readonly range: PathRange;
  readonly after: number;
  readonly initial: readonly Stored<K>[] | undefined;
}

export class EtcdWatch<K extends StoredKey> implements Watch<K> {
  readonly #options: Options<K>;

  constructor(options: Options<K>) {
    this.#options = options;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<readonly WatchEvent<K>[]> {
    const { stream, range, after, initial } = this.#options;
    try {
      if (initial !== undefined) yield snapshotEvents(initial, after);
      for (let response = await stream.next(); response !== undefined; response = await stream.next()) {
        const events = response.events.flatMap((event) => changeEvent<K>(range, changeOf(event)) ?? []);
        if (events.length > 0) yield events;
      }
    } finally {
      stream.close();
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#options.stream.close();
  }
}

const changeOf = ({ type, row, previous }: EtcdEvent): RowChange => ({
  path: row.path,
  revision: row.revision,
  value: type === "delete" ? null : row.value,
  isNew: row.createRevision === row.revision,
  previous,
});
