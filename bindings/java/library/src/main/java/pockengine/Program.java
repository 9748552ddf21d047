package pockengine;

import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** A compiled program of the native library: its entries, their tensors, its parameters. */
public final class Program {
    /** A function of a program: "train", "evaluate", "predict". */
    public static final class Entry {
        private final String name;
        private final List<Tensor> inputs;
        private final List<Tensor> outputs;

        Entry(String name, List<Tensor> inputs, List<Tensor> outputs) {
            this.name = name;
            this.inputs = inputs;
            this.outputs = outputs;
        }

        /** Returns its name. */
        public String name() {
            return name;
        }

        /** Returns its inputs in order. */
        public List<Tensor> inputs() {
            return inputs;
        }

        /** Returns its outputs in order. */
        public List<Tensor> outputs() {
            return outputs;
        }
    }

    private final int number;
    private final String name;
    private final Map<String, Entry> entries = new LinkedHashMap<>();
    private final Map<String, Tensor> params = new LinkedHashMap<>();

    private Program(int number, String name) {
        this.number = number;
        this.name = name;
        for (int i = 0; ; i++) {
            final String entry = Natives.string(Natives.entryName(number, i));
            if (entry == null) {
                break;
            }
            entries.put(entry, new Entry(
                    entry, tensors(i, Natives.INPUTS), tensors(i, Natives.OUTPUTS)));
        }
        for (Tensor param : tensors(0, Natives.PARAMS)) {
            params.put(param.name(), param);
        }
    }

    /** Returns the program of this name; IllegalArgumentException lists those of the library. */
    public static Program find(String name) {
        final List<String> known = names();
        final int number = known.indexOf(name);
        if (number < 0) {
            throw new IllegalArgumentException(
                    "the native library has no program \"" + name + "\"; it has: "
                            + String.join(", ", known));
        }
        return new Program(number, name);
    }

    /** Returns the names of all programs of the native library. */
    public static List<String> names() {
        final List<String> found = new ArrayList<>();
        for (int i = 0; ; i++) {
            final String name = Natives.string(Natives.programName(i));
            if (name == null) {
                return Collections.unmodifiableList(found);
            }
            found.add(name);
        }
    }

    /** Returns its name. */
    public String name() {
        return name;
    }

    /** Returns its entries in order. */
    public List<Entry> entries() {
        return Collections.unmodifiableList(new ArrayList<>(entries.values()));
    }

    /** Returns an entry; IllegalArgumentException lists those that it has. */
    public Entry entry(String entry) {
        final Entry found = entries.get(entry);
        if (found == null) {
            throw new IllegalArgumentException(
                    "program " + name + " has no entry \"" + entry + "\"; it has: "
                            + String.join(", ", entries.keySet()));
        }
        return found;
    }

    /** Returns its parameters and states in order. */
    public List<Tensor> params() {
        return Collections.unmodifiableList(new ArrayList<>(params.values()));
    }

    /** Returns a parameter by the model's name; IllegalArgumentException if there is none. */
    public Tensor param(String param) {
        final Tensor found = params.get(param);
        if (found == null) {
            throw new IllegalArgumentException(
                    "program " + name + " has no parameter \"" + param + "\"");
        }
        return found;
    }

    int number() {
        return number;
    }

    private List<Tensor> tensors(int entry, int kind) {
        final List<Tensor> found = new ArrayList<>();
        for (int i = 0; ; i++) {
            final String tensor = Natives.string(Natives.tensorName(number, entry, kind, i));
            if (tensor == null) {
                return Collections.unmodifiableList(found);
            }
            found.add(new Tensor(tensor, Natives.tensor(number, entry, kind, i)));
        }
    }
}
