package org.example.train;

import java.io.File;
import java.io.IOException;
import java.io.InputStream;
import java.math.BigInteger;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;

/**
 * The folder of a model's weights and checkpoints, named by a digest of the weights. So an update of
 * the app with another model starts afresh, and one with the same model continues its training.
 */
final class ModelFolder {
    /** A file inside the package. */
    interface Asset {
        InputStream open() throws IOException;
    }

    private static final int BUFFER = 1 << 16;

    private final File folder;

    private ModelFolder(File folder) {
        this.folder = folder;
    }

    /**
     * Makes the folder of these weights in `parent`. Those of other weights are deleted before, as
     * the disk may not have room for both.
     */
    static ModelFolder in(File parent, Asset asset) throws IOException {
        final ModelFolder made = new ModelFolder(new File(parent, digest(asset)));
        for (File other : list(parent)) {
            if (!other.equals(made.folder)) {
                delete(other);
            }
        }
        if (!made.weights().exists()) {
            made.copy(asset);
        }
        return made;
    }

    /** Copies the weights. They have their name only when they are whole, also on disk. */
    private void copy(Asset asset) throws IOException {
        Files.createDirectories(folder.toPath());
        final Path part = new File(folder, "part").toPath();
        try (InputStream stream = asset.open()) {
            Files.copy(stream, part, StandardCopyOption.REPLACE_EXISTING);
        }
        try (FileChannel channel = FileChannel.open(part, StandardOpenOption.WRITE)) {
            channel.force(true); // a power failure could leave the name of an empty file
        }
        Files.move(part, weights().toPath(), StandardCopyOption.ATOMIC_MOVE);
    }

    /** Returns the weights as a file, which is mapped: an asset is inside the package. */
    File weights() {
        return new File(folder, "weights.safetensors");
    }

    /** Returns the folder of checkpoints, which may not exist yet. */
    File checkpoints() {
        return new File(folder, "checkpoints");
    }

    private static String digest(Asset asset) throws IOException {
        final MessageDigest digest;
        try {
            digest = MessageDigest.getInstance("SHA-256");
        } catch (NoSuchAlgorithmException error) {
            throw new AssertionError(error); // every Android and every JVM has it
        }
        final byte[] buffer = new byte[BUFFER];
        try (InputStream stream = asset.open()) {
            for (int count; (count = stream.read(buffer)) >= 0; ) {
                digest.update(buffer, 0, count);
            }
        }
        return String.format("%064x", new BigInteger(1, digest.digest()));
    }

    private static File[] list(File folder) {
        final File[] found = folder.listFiles();
        return found == null ? new File[0] : found;
    }

    private static void delete(File file) throws IOException {
        for (File part : list(file)) {
            delete(part);
        }
        Files.delete(file.toPath());
    }
}
