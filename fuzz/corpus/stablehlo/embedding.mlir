module @jit_embedding attributes {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 1 : i32} {
  func.func public @main(%arg0: tensor<12x8xf32>, %arg1: tensor<4x3xi32>, %arg2: tensor<4x3x8xf32>) -> (tensor<4x3x8xf32> {jax.result_info = "result[0]"}, tensor<12x8xf32> {jax.result_info = "result[1]"}, tensor<12x8xf32> {jax.result_info = "result[2]"}, tensor<12x8xf32> {jax.result_info = "result[3]"}, tensor<4x3x12xbf16> {jax.result_info = "result[4]"}, tensor<12x8xf32> {jax.result_info = "result[5]"}) {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i32>) -> tensor<4x3xi32>
    %1 = stablehlo.compare LT, %arg1, %0, SIGNED : (tensor<4x3xi32>, tensor<4x3xi32>) -> tensor<4x3xi1>
    %c_0 = stablehlo.constant dense<12> : tensor<i32>
    %2 = stablehlo.broadcast_in_dim %c_0, dims = [] : (tensor<i32>) -> tensor<4x3xi32>
    %3 = stablehlo.add %arg1, %2 : tensor<4x3xi32>
    %4 = stablehlo.select %1, %3, %arg1 : tensor<4x3xi1>, tensor<4x3xi32>
    %5 = stablehlo.broadcast_in_dim %4, dims = [0, 1] : (tensor<4x3xi32>) -> tensor<4x3x1xi32>
    %6 = "stablehlo.gather"(%arg0, %5) <{dimension_numbers = #stablehlo.gather<offset_dims = [2], collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 2>, indices_are_sorted = false, slice_sizes = array<i64: 1, 8>}> : (tensor<12x8xf32>, tensor<4x3x1xi32>) -> tensor<4x3x8xf32>
    %c_1 = stablehlo.constant dense<0> : tensor<i32>
    %7 = stablehlo.broadcast_in_dim %c_1, dims = [] : (tensor<i32>) -> tensor<4x3xi32>
    %8 = stablehlo.compare LT, %arg1, %7, SIGNED : (tensor<4x3xi32>, tensor<4x3xi32>) -> tensor<4x3xi1>
    %c_2 = stablehlo.constant dense<12> : tensor<i32>
    %9 = stablehlo.broadcast_in_dim %c_2, dims = [] : (tensor<i32>) -> tensor<4x3xi32>
    %10 = stablehlo.add %arg1, %9 : tensor<4x3xi32>
    %11 = stablehlo.select %8, %10, %arg1 : tensor<4x3xi1>, tensor<4x3xi32>
    %12 = stablehlo.broadcast_in_dim %11, dims = [0, 1] : (tensor<4x3xi32>) -> tensor<4x3x1xi32>
    %13 = "stablehlo.scatter"(%arg0, %12, %arg2) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<update_window_dims = [2], inserted_window_dims = [0], scatter_dims_to_operand_dims = [0], index_vector_dim = 2>, unique_indices = false}> ({
    ^bb0(%arg3: tensor<f32>, %arg4: tensor<f32>):
      %38 = stablehlo.add %arg3, %arg4 : tensor<f32>
      stablehlo.return %38 : tensor<f32>
    }) : (tensor<12x8xf32>, tensor<4x3x1xi32>, tensor<4x3x8xf32>) -> tensor<12x8xf32>
    %14 = call @argsort(%arg0) : (tensor<12x8xf32>) -> tensor<12x8xi32>
    %15 = stablehlo.reverse %14, dims = [1] : tensor<12x8xi32>
    %16 = call @take_along_axis(%arg0, %15) : (tensor<12x8xf32>, tensor<12x8xi32>) -> tensor<12x8xf32>
    %17 = stablehlo.iota dim = 0 : tensor<4xi32>
    %18 = stablehlo.iota dim = 0 : tensor<4xi32>
    %c_3 = stablehlo.constant dense<0> : tensor<i32>
    %19 = stablehlo.broadcast_in_dim %c_3, dims = [] : (tensor<i32>) -> tensor<4xi32>
    %20 = stablehlo.compare LT, %17, %19, SIGNED : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi1>
    %c_4 = stablehlo.constant dense<12> : tensor<i32>
    %21 = stablehlo.broadcast_in_dim %c_4, dims = [] : (tensor<i32>) -> tensor<4xi32>
    %22 = stablehlo.add %17, %21 : tensor<4xi32>
    %23 = stablehlo.select %20, %22, %17 : tensor<4xi1>, tensor<4xi32>
    %c_5 = stablehlo.constant dense<0> : tensor<i32>
    %24 = stablehlo.broadcast_in_dim %c_5, dims = [] : (tensor<i32>) -> tensor<4xi32>
    %25 = stablehlo.compare LT, %18, %24, SIGNED : (tensor<4xi32>, tensor<4xi32>) -> tensor<4xi1>
    %c_6 = stablehlo.constant dense<8> : tensor<i32>
    %26 = stablehlo.broadcast_in_dim %c_6, dims = [] : (tensor<i32>) -> tensor<4xi32>
    %27 = stablehlo.add %18, %26 : tensor<4xi32>
    %28 = stablehlo.select %25, %27, %18 : tensor<4xi1>, tensor<4xi32>
    %29 = stablehlo.broadcast_in_dim %23, dims = [0] : (tensor<4xi32>) -> tensor<4x1xi32>
    %30 = stablehlo.broadcast_in_dim %28, dims = [0] : (tensor<4xi32>) -> tensor<4x1xi32>
    %31 = stablehlo.concatenate %29, %30, dim = 1 : (tensor<4x1xi32>, tensor<4x1xi32>) -> tensor<4x2xi32>
    %cst = stablehlo.constant dense<7.000000e+00> : tensor<f32>
    %32 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<4xf32>
    %33 = "stablehlo.scatter"(%arg0, %31, %32) <{indices_are_sorted = false, scatter_dimension_numbers = #stablehlo.scatter<inserted_window_dims = [0, 1], scatter_dims_to_operand_dims = [0, 1], index_vector_dim = 1>, unique_indices = false}> ({
    ^bb0(%arg3: tensor<f32>, %arg4: tensor<f32>):
      stablehlo.return %arg4 : tensor<f32>
    }) : (tensor<12x8xf32>, tensor<4x2xi32>, tensor<4xf32>) -> tensor<12x8xf32>
    %34 = call @_one_hot(%arg1) : (tensor<4x3xi32>) -> tensor<4x3x12xbf16>
    %35 = call @_flip(%arg0) : (tensor<12x8xf32>) -> tensor<12x8xf32>
    %36 = call @cumsum(%35) : (tensor<12x8xf32>) -> tensor<12x8xf32>
    %37 = call @_flip(%36) : (tensor<12x8xf32>) -> tensor<12x8xf32>
    return %6, %13, %16, %33, %34, %37 : tensor<4x3x8xf32>, tensor<12x8xf32>, tensor<12x8xf32>, tensor<12x8xf32>, tensor<4x3x12xbf16>, tensor<12x8xf32>
  }
  func.func private @argsort(%arg0: tensor<12x8xf32>) -> tensor<12x8xi32> {
    %0 = stablehlo.iota dim = 1 : tensor<12x8xi32>
    %1:2 = "stablehlo.sort"(%arg0, %0) <{dimension = 1 : i64, is_stable = true}> ({
    ^bb0(%arg1: tensor<f32>, %arg2: tensor<f32>, %arg3: tensor<i32>, %arg4: tensor<i32>):
      %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %2 = stablehlo.compare EQ, %arg1, %cst, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %cst_0 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %3 = stablehlo.select %2, %cst_0, %arg1 : tensor<i1>, tensor<f32>
      %4 = stablehlo.compare NE, %arg1, %arg1, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %cst_1 = stablehlo.constant dense<0x7FC00000> : tensor<f32>
      %5 = stablehlo.select %4, %cst_1, %3 : tensor<i1>, tensor<f32>
      %cst_2 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %6 = stablehlo.compare EQ, %arg2, %cst_2, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %cst_3 = stablehlo.constant dense<0.000000e+00> : tensor<f32>
      %7 = stablehlo.select %6, %cst_3, %arg2 : tensor<i1>, tensor<f32>
      %8 = stablehlo.compare NE, %arg2, %arg2, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>
      %cst_4 = stablehlo.constant dense<0x7FC00000> : tensor<f32>
      %9 = stablehlo.select %8, %cst_4, %7 : tensor<i1>, tensor<f32>
      %10 = stablehlo.compare LT, %5, %9, TOTALORDER : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %10 : tensor<i1>
    }) : (tensor<12x8xf32>, tensor<12x8xi32>) -> (tensor<12x8xf32>, tensor<12x8xi32>)
    return %1#1 : tensor<12x8xi32>
  }
  func.func private @take_along_axis(%arg0: tensor<12x8xf32>, %arg1: tensor<12x8xi32>) -> tensor<12x8xf32> {
    %c = stablehlo.constant dense<0> : tensor<i32>
    %0 = stablehlo.broadcast_in_dim %c, dims = [] : (tensor<i32>) -> tensor<12x8xi32>
    %1 = stablehlo.compare LT, %arg1, %0, SIGNED : (tensor<12x8xi32>, tensor<12x8xi32>) -> tensor<12x8xi1>
    %c_0 = stablehlo.constant dense<8> : tensor<i32>
    %2 = stablehlo.broadcast_in_dim %c_0, dims = [] : (tensor<i32>) -> tensor<12x8xi32>
    %3 = stablehlo.add %arg1, %2 : tensor<12x8xi32>
    %4 = stablehlo.select %1, %3, %arg1 : tensor<12x8xi1>, tensor<12x8xi32>
    %5 = stablehlo.reshape %4 : (tensor<12x8xi32>) -> tensor<12x8x1xi32>
    %c_1 = stablehlo.constant dense<7> : tensor<1xi32>
    %c_2 = stablehlo.constant dense<0> : tensor<i32>
    %6 = stablehlo.broadcast_in_dim %c_2, dims = [] : (tensor<i32>) -> tensor<12x8x1xi32>
    %7 = stablehlo.compare GE, %5, %6, SIGNED : (tensor<12x8x1xi32>, tensor<12x8x1xi32>) -> tensor<12x8x1xi1>
    %8 = stablehlo.broadcast_in_dim %c_1, dims = [2] : (tensor<1xi32>) -> tensor<1x1x1xi32>
    %9 = stablehlo.broadcast_in_dim %8, dims = [0, 1, 2] : (tensor<1x1x1xi32>) -> tensor<12x8x1xi32>
    %10 = stablehlo.compare LE, %5, %9, SIGNED : (tensor<12x8x1xi32>, tensor<12x8x1xi32>) -> tensor<12x8x1xi1>
    %11 = stablehlo.and %7, %10 : tensor<12x8x1xi1>
    %c_3 = stablehlo.constant dense<true> : tensor<i1>
    %12 = stablehlo.reduce(%11 init: %c_3) applies stablehlo.and across dimensions = [2] : (tensor<12x8x1xi1>, tensor<i1>) -> tensor<12x8xi1>
    %13 = "stablehlo.gather"(%arg0, %5) <{dimension_numbers = #stablehlo.gather<collapsed_slice_dims = [1], operand_batching_dims = [0], start_indices_batching_dims = [0], start_index_map = [1], index_vector_dim = 2>, indices_are_sorted = false, slice_sizes = array<i64: 1, 1>}> : (tensor<12x8xf32>, tensor<12x8x1xi32>) -> tensor<12x8xf32>
    %cst = stablehlo.constant dense<0x7FC00000> : tensor<f32>
    %14 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<12x8xf32>
    %15 = stablehlo.select %12, %13, %14 : tensor<12x8xi1>, tensor<12x8xf32>
    return %15 : tensor<12x8xf32>
  }
  func.func private @_one_hot(%arg0: tensor<4x3xi32>) -> tensor<4x3x12xbf16> {
    %0 = stablehlo.broadcast_in_dim %arg0, dims = [0, 1] : (tensor<4x3xi32>) -> tensor<4x3x1xi32>
    %1 = stablehlo.iota dim = 2 : tensor<1x1x12xi32>
    %2 = stablehlo.broadcast_in_dim %0, dims = [0, 1, 2] : (tensor<4x3x1xi32>) -> tensor<4x3x12xi32>
    %3 = stablehlo.broadcast_in_dim %1, dims = [0, 1, 2] : (tensor<1x1x12xi32>) -> tensor<4x3x12xi32>
    %4 = stablehlo.compare EQ, %2, %3, SIGNED : (tensor<4x3x12xi32>, tensor<4x3x12xi32>) -> tensor<4x3x12xi1>
    %5 = stablehlo.convert %4 : (tensor<4x3x12xi1>) -> tensor<4x3x12xbf16>
    return %5 : tensor<4x3x12xbf16>
  }
  func.func private @_flip(%arg0: tensor<12x8xf32>) -> tensor<12x8xf32> {
    %0 = stablehlo.reverse %arg0, dims = [0] : tensor<12x8xf32>
    return %0 : tensor<12x8xf32>
  }
  func.func private @cumsum(%arg0: tensor<12x8xf32>) -> tensor<12x8xf32> {
    %0 = call @cumsum_0(%arg0) : (tensor<12x8xf32>) -> tensor<12x8xf32>
    return %0 : tensor<12x8xf32>
  }
  func.func private @cumsum_0(%arg0: tensor<12x8xf32>) -> tensor<12x8xf32> {
    %cst = stablehlo.constant dense<0.000000e+00> : tensor<f32>
    %0 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<f32>
    %1 = "stablehlo.reduce_window"(%arg0, %0) <{base_dilations = array<i64: 1, 1>, padding = dense<[[11, 0], [0, 0]]> : tensor<2x2xi64>, window_dilations = array<i64: 1, 1>, window_dimensions = array<i64: 12, 1>, window_strides = array<i64: 1, 1>}> ({
    ^bb0(%arg1: tensor<f32>, %arg2: tensor<f32>):
      %2 = stablehlo.add %arg1, %arg2 : tensor<f32>
      stablehlo.return %2 : tensor<f32>
    }) : (tensor<12x8xf32>, tensor<f32>) -> tensor<12x8xf32>
    return %1 : tensor<12x8xf32>
  }
}
