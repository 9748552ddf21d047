package pockengine;

import java.nio.ByteBuffer;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicReference;

/**
 * A program with its memory and threads. Close it: its memory is not Java's, and no garbage
 * collection gives it back.
 *
 * <p>One call at a time may use a session, from any thread; a second one is an
 * IllegalStateException, as is a call after {@link #close} or from a listener of its training.
 */
public final class Session implements AutoCloseable {
    /** A call of C that may throw exceptions of callbacks. */
    interface Action<E extends Exception> {
        void run(long session) throws E;
    }

    private final Program program;
    private final AtomicReference<String> user = new AtomicReference<>();
    private long handle;

    private Session(Program program, long handle) {
        this.program = program;
        this.handle = handle;
    }

    /**
     * Opens a program of the native library with the weights of its artifact.
     *
     * @param weights the path of weights.safetensors, or of a checkpoint that holds all weights
     */
    public static Session open(String program, String weights, int threads) {
        final Program found = Program.find(program);
        final byte[] path = Natives.text(weights);
        final Session session = new Session(found, Natives.open(found.number(), threads));
        try {
            Natives.load(session.handle, path);
            return session;
        } catch (RuntimeException error) {
            session.close();
            throw error;
        }
    }

    /** Returns the program of the session. */
    public Program program() {
        return program;
    }

    /** Returns a direct buffer for each input of an entry that is data, by name, in order. */
    public Map<String, ByteBuffer> newInputs(String entry) {
        final Map<String, ByteBuffer> buffers = new LinkedHashMap<>();
        for (Tensor input : program.entry(entry).inputs()) {
            if (!input.isControl()) {
                buffers.put(input.name(), input.newBuffer());
            }
        }
        return buffers;
    }

    /** Returns a direct buffer for each output of an entry, by name, in order. */
    public Map<String, ByteBuffer> newOutputs(String entry) {
        final Map<String, ByteBuffer> buffers = new LinkedHashMap<>();
        for (Tensor output : program.entry(entry).outputs()) {
            buffers.put(output.name(), output.newBuffer());
        }
        return buffers;
    }

    /**
     * Runs an entry that trains nothing, such as "predict"; a {@link Trainer} runs the others.
     * Inputs that are missing stay as the last run left them, and outputs that are missing are not
     * copied.
     */
    public void run(String entry, Map<String, ByteBuffer> inputs, Map<String, ByteBuffer> outputs) {
        final Program.Entry found = program.entry(entry);
        if (found.inputs().stream().anyMatch(Tensor::isOfTraining)) {
            throw new IllegalArgumentException("entry \"" + entry + "\" trains: use a Trainer");
        }
        outputs.forEach(Tensor::requireWritable);
        final ByteBuffer[] in = match(found.name(), "input", found.inputs(), inputs);
        final ByteBuffer[] out = match(found.name(), "output", found.outputs(), outputs);
        use("running " + entry, session -> Natives.run(session, Natives.text(entry), in, out));
    }

    /** Copies a parameter into a direct buffer of its size. */
    public void get(String param, ByteBuffer data) {
        Tensor.requireWritable(param, data);
        final ByteBuffer checked = program.param(param).check(data);
        use("reading " + param, session -> Natives.get(session, Natives.text(param), checked));
    }

    /** Replaces a parameter. */
    public void set(String param, ByteBuffer data) {
        final ByteBuffer checked = program.param(param).check(data);
        use("writing " + param, session -> Natives.set(session, Natives.text(param), checked));
    }

    /** Replaces parameters and progress by those of a checkpoint or of weights. */
    public void load(String path) {
        use("loading", session -> Natives.load(session, Natives.text(path)));
    }

    /** Writes a checkpoint: if the app is killed, either the old or the new file is complete. */
    public void save(String path) {
        use("saving", session -> Natives.save(session, Natives.text(path), false));
    }

    /** Writes the trained weights, or all of them, with the model's names. */
    public void export(String path, boolean all) {
        use("exporting", session -> Natives.export(session, Natives.text(path), all));
    }

    /** Returns the number of completed training steps. */
    public long steps() {
        final long[] found = new long[1];
        use("reading its progress", session -> found[0] = Natives.progress(session)[0]);
        return found[0];
    }

    /** Ends the threads and frees the memory; a second call does nothing. */
    @Override
    public void close() {
        if (user.compareAndSet(null, "closing")) {
            try {
                if (handle != 0) {
                    Natives.close(handle);
                    handle = 0;
                }
            } finally {
                user.set(null);
            }
        } else {
            throw busy("close it");
        }
    }

    /** Calls `action` with the session of C, for this call alone. */
    <E extends Exception> void use(String what, Action<E> action) throws E {
        if (!user.compareAndSet(null, what)) {
            throw busy("start " + what);
        }
        try {
            if (handle == 0) {
                throw new IllegalStateException(
                        "the session of " + program.name() + " is closed: open another one");
            }
            action.run(handle);
        } finally {
            user.set(null);
        }
    }

    private IllegalStateException busy(String action) {
        return new IllegalStateException(
                "the session of " + program.name() + " is " + user.get() + ": " + action
                        + " when that call has returned");
    }

    /** Returns the buffers in the order of the tensors, null for those that are missing. */
    static ByteBuffer[] match(
            String entry, String kind, List<Tensor> tensors, Map<String, ByteBuffer> buffers) {
        final ByteBuffer[] found = new ByteBuffer[tensors.size()];
        int matched = 0;
        for (int i = 0; i < found.length; i++) {
            final ByteBuffer buffer = buffers.get(tensors.get(i).name());
            if (buffer != null) {
                found[i] = tensors.get(i).check(buffer);
                matched++;
            }
        }
        if (matched != buffers.size()) {
            throw new IllegalArgumentException(
                    "entry \"" + entry + "\" has other " + kind + "s than " + buffers.keySet()
                            + ": " + tensors);
        }
        return found;
    }
}
