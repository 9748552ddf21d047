import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.Collections;
import java.util.Map;
import java.util.concurrent.Callable;
import pockengine.Event;
import pockengine.PockEngineException;
import pockengine.Program;
import pockengine.Session;
import pockengine.Trainer;

/** Trains, and makes calls that must fail; the test compares each output line. */
final class Checks {
    private final String weights;
    private final byte[] data;
    private final Path folder;

    private Checks(String[] arguments) throws IOException {
        weights = arguments[0];
        data = Files.readAllBytes(Paths.get(arguments[1]));
        folder = Paths.get(arguments[2]);
    }

    public static void main(String[] arguments) throws Exception {
        final Checks checks = new Checks(arguments);
        checks.trainAndResume();
        checks.predict();
        checks.refusals();
        checks.listeners();
    }

    private Session open() {
        return Session.open("small_cnn", weights, 1);
    }

    /** Reads the batch of a step. The data hold all batches in order, x before labels. */
    private void read(long step, Map<String, ByteBuffer> inputs) {
        int bytes = 0;
        for (ByteBuffer buffer : inputs.values()) {
            bytes += buffer.capacity();
        }
        int at = (int) (step - 1) * bytes;
        for (String name : new String[] {"x", "labels"}) {
            final ByteBuffer buffer = inputs.get(name);
            buffer.put(data, at, buffer.capacity());
            at += buffer.capacity();
        }
    }

    private Trainer trainer(Session session) {
        return new Trainer(session).rate(0.1).until(20).checkpoints(folder + "/kept", 5, 2);
    }

    private void trainAndResume() throws Exception {
        try (Session session = open()) {
            final Trainer trainer = trainer(session);
            trainer.listener(event -> {
                if (event.kind() == Event.Kind.STEPPED) {
                    System.out.println("loss " + Float.floatToRawIntBits(event.loss()));
                }
                return event.step() != 12 || event.kind() != Event.Kind.STEPPED;
            });
            System.out.println("ended " + trainer.train(this::read) + " at " + session.steps());
        }
        try (Session session = open()) {
            final Trainer trainer = trainer(session);
            trainer.listener(event -> {
                if (event.kind() == Event.Kind.STEPPED) {
                    System.out.println("loss " + Float.floatToRawIntBits(event.loss()));
                }
                return true;
            });
            System.out.println("resumed " + trainer.resume() + " at " + session.steps());
            System.out.println("ended " + trainer.train(this::read) + " at " + session.steps());
            session.save(folder + "/checkpoint");
            session.export(folder + "/tuned.safetensors", true);
        }
    }

    private void predict() {
        try (Session session = open()) {
            session.load(folder + "/checkpoint");
            final Map<String, ByteBuffer> inputs = session.newInputs("predict");
            final Map<String, ByteBuffer> outputs = session.newOutputs("predict");
            final ByteBuffer x = inputs.get("x");
            x.put(data, 0, x.capacity());
            session.run("predict", inputs, outputs);
            final StringBuilder line = new StringBuilder("logits");
            for (ByteBuffer logits = outputs.get("logits"); logits.hasRemaining(); ) {
                line.append(' ').append(logits.getInt());
            }
            System.out.println(line);
            final ByteBuffer head = session.program().param("head.weight").newBuffer();
            session.get("head.weight", head);
            head.putFloat(0, 7.5f);
            session.set("head.weight", head);
            final ByteBuffer again = session.program().param("head.weight").newBuffer();
            session.get("head.weight", again);
            System.out.println("weight " + again.getFloat(0));
        }
    }

    private void refusals() throws Exception {
        final Session session = open();
        final Map<String, ByteBuffer> none = Collections.emptyMap();
        final ByteBuffer small = ByteBuffer.allocateDirect(4);
        refused("program", () -> Program.find("words"));
        refused("weights", () -> Session.open("small_cnn", "/nowhere", 1));
        refused("threads", () -> Session.open("small_cnn", weights, 0));
        refused("entry", () -> run(session, "walk", none));
        refused("input", () -> run(session, "predict", Collections.singletonMap("y", small)));
        refused("size", () -> run(session, "predict", Collections.singletonMap("x", small)));
        refused("heap", () -> run(
                session, "predict", Collections.singletonMap("x", ByteBuffer.allocate(4))));
        final ByteBuffer read = session.newInputs("predict").get("x").asReadOnlyBuffer();
        refused("output", () -> {
            session.run("predict", none, Collections.singletonMap("logits", read));
            return null;
        });
        refused("copy", () -> {
            session.get("head.weight", read);
            return null;
        });
        refused("train", () -> run(session, "train", none));
        refused("param", () -> session.program().param("tail"));
        refused("damaged", () -> {
            final Path bad = folder.resolve("bad");
            Files.write(bad, new byte[40]);
            session.load(bad.toString());
            return null;
        });
        refused("settings", () -> new Trainer(session).train(this::read));
        refused("folder", () -> new Trainer(session).resume());
        refused("name", () -> new Trainer(session).checkpoints("", 1, 1));
        refused("rate", () -> new Trainer(session).rate(-1));
        refused("large", () -> new Trainer(session).rate(1e39).until(1).train(this::read));
        refused("data", () -> new Trainer(session).rate(0.1).until(3).train((step, inputs) -> {
            throw new IOException("no more rows at step " + step);
        }));
        session.close();
        session.close();
        refused("closed", () -> run(session, "predict", none));
    }

    private void listeners() throws Exception {
        try (Session session = open()) {
            final Trainer trainer = new Trainer(session).rate(0.1).until(3);
            refused("training", () -> trainer.listener(event -> {
                session.close();
                return true;
            }).train(this::read));
            trainer.listener(event -> true).stop();
            System.out.println("stopped " + trainer.train(this::read) + " at " + session.steps());
            System.out.println("went on " + trainer.train(this::read) + " at " + session.steps());
        }
    }

    private static Object run(Session session, String entry, Map<String, ByteBuffer> inputs) {
        session.run(entry, inputs, Collections.emptyMap());
        return null;
    }

    private static void refused(String name, Callable<?> action) {
        try {
            action.call();
            System.out.println(name + ": taken");
        } catch (PockEngineException error) {
            System.out.println(name + ": " + error.reason() + ": " + error.getMessage());
        } catch (Exception error) {
            System.out.println(
                    name + ": " + error.getClass().getSimpleName() + ": " + error.getMessage());
        }
    }
}
